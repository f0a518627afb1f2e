"""How fast are calls of Python functions? 10,000 no-ops on two workers, and a chain of 500, journal on.

Against `concurrent.futures.ProcessPoolExecutor` without chunks, each alternation in fresh processes, all workers warm. Of
what a program sees that hands them in (`cantle.open`, journal on), and of the loop alone, from the first launch to the last
result in its sink. Of the program's chain each call is handed in with the future of the one before.
Keys: rate_vs_processpool (1 = as many calls a second), hop_vs_processpool (1 = as long a hop), and loop_ of both.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import arguments, conclude, median_ratio, scratch, table

CALLS = 10_000
HOPS = 500
WARM = 2


def noop(value: int) -> int:
    """What is called."""
    return value


def pool_calls() -> float:
    """Seconds for all calls, by the executor of the standard library."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as pool:
        list(pool.map(noop, range(4)))
        start = time.perf_counter()
        futures = [pool.submit(noop, n) for n in range(CALLS)]
        assert sum(future.result() for future in futures) == CALLS * (CALLS - 1) // 2
        return time.perf_counter() - start


def pool_chain() -> float:
    """Seconds for the chain, each hop handed in when the one before is over: the executor knows no other way."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as pool:
        list(pool.map(noop, range(4)))
        start = time.perf_counter()
        value = 7
        for _ in range(HOPS):
            value = pool.submit(noop, value).result()
        assert value == 7
        return time.perf_counter() - start


def api_calls() -> float:
    """Seconds for all calls, by futures of a program."""
    import cantle

    with scratch() as room, cantle.open(cores=2, directory=Path(room) / "run") as pilot:
        _warm(pilot)
        start = time.perf_counter()
        futures = [pilot.submit(noop, n) for n in range(CALLS)]
        assert sum(future.result() for future in futures) == CALLS * (CALLS - 1) // 2
        return time.perf_counter() - start


def api_chain() -> float:
    """Seconds for the chain of futures."""
    import cantle

    with scratch() as room, cantle.open(cores=2, directory=Path(room) / "run") as pilot:
        _warm(pilot)
        start = time.perf_counter()
        last = pilot.submit(noop, 7)
        for _ in range(HOPS - 1):
            last = pilot.submit(noop, last)
        assert last.result() == 7
        return time.perf_counter() - start


def _warm(pilot: Any) -> None:
    for future in [pilot.submit(time.sleep, 0.3) for _ in range(WARM)]:
        future.result()
    for future in [pilot.submit(noop, n) for n in range(4)]:
        future.result()


def loop_calls() -> float:
    """Seconds for all calls, by Cantle's loop."""
    took, last = _by_the_loop([(n, ()) for n in range(CALLS)])
    assert last == CALLS - 1
    return took


def loop_chain() -> float:
    """Seconds for the chain, given as a graph."""
    took, last = _by_the_loop([(7, ())] + [(None, (WARM + n,)) for n in range(HOPS - 1)])
    assert last == 7
    return took


class _Before:
    """Stands for the result of the one call that a call takes."""


def _by_the_loop(calls: list[tuple[int | None, tuple[int, ...]]]) -> tuple[float, Any]:
    """From the end of the calls that warm the workers up to the last result: seconds, and that result."""
    from cantle.allocations.local import LocalAllocation

    allocation = LocalAllocation(cores=2)
    allocation.prepare()
    import cloudpickle

    from cantle.core.decide import Decider
    from cantle.engines.process import ProcessEngine
    from cantle.model.study import Call, Command, Limits, Step, Study, Task
    from cantle.runner.calling import values
    from cantle.runtime.conducting import Machine, begin
    from cantle.store.layout import Layout

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    digest, body = values.pack_function(noop)
    warm_digest, warm_body = values.pack_function(time.sleep)
    tasks = [Task(f"warm.{n}", 0) for n in range(WARM)]
    commands = [Command(call=Call(warm_digest, values.pack_call((0.3,), {}, lambda _: None)[0]))] * WARM
    for number, (value, takes) in enumerate(calls):
        given: Any = value if not takes else _Before()
        packed, _ = values.pack_call((given,), {}, lambda one: 0 if type(one) is _Before else None)
        commands.append(Command(call=Call(digest, packed, takes)))
        tasks.append(Task(f"call.{number}", 1, takes or tuple(range(WARM))))

    class Work:
        def prepare(self, directory: str) -> None:
            pass

        def command(self, task: int, *_: Any) -> Command:
            return commands[task]

    results: dict[int, bytes] = {}
    when: dict[int, float] = {}

    def take(result: Any) -> None:
        results[result.task] = result.inline
        if result.task < WARM or len(results) == len(tasks):
            when[result.task] = time.perf_counter()

    def engine(inbox: Any, layout: Layout, hide_gpus: bool) -> ProcessEngine:
        made = ProcessEngine(inbox, str(layout.directory), home="nodes", hide_gpus=hide_gpus)
        made.calls.define(digest, body)
        made.calls.define(warm_digest, warm_body)
        made.calls.sink = take
        return made

    with scratch() as room:
        study = Study("bench", [Step("warm"), Step("call")], tasks, lambda _: Work())
        conductor = begin(study, Layout(Path(room) / "run"), "bench", Limits())
        outcome = conductor.conduct(Machine(allocation, engine), Decider())
        conductor.close()
    assert outcome.exit_code == 0
    end = max(at for task, at in when.items() if task >= WARM)
    return end - max(when[n] for n in range(WARM)), values.unpack(results[len(tasks) - 1])


CONTESTANTS = {
    "pool_calls": pool_calls,
    "api_calls": api_calls,
    "loop_calls": loop_calls,
    "pool_chain": pool_chain,
    "api_chain": api_chain,
    "loop_chain": loop_chain,
}


def main() -> None:
    """Alternate, tell."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(CONTESTANTS[sys.argv[2]]()))
        return
    asked = arguments(__doc__)
    rounds = asked.rounds or (3 if asked.quick else 7)
    taken: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):
        for name, times in taken.items():
            told = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, check=True)
            times.append(float(json.loads(told.stdout.split(b"\n")[-2])))
    table(
        ["", "ms each, median", "best", "a second, median"],
        [
            [name, 1000 * sorted(times)[rounds // 2] / n, 1000 * min(times) / n, n / sorted(times)[rounds // 2]]
            for name, times in taken.items()
            for n in [CALLS if name.endswith("calls") else HOPS]
        ],
    )
    rate = median_ratio(taken["pool_calls"], taken["api_calls"])
    hop = median_ratio(taken["api_chain"], taken["pool_chain"])
    loop_rate = median_ratio(taken["pool_calls"], taken["loop_calls"])
    loop_hop = median_ratio(taken["loop_chain"], taken["pool_chain"])
    print(
        f"\ncalls: {rate:.2f} times the executor's rate; a hop takes {hop:.2f} of its time (median of {rounds} pairs)"
    )
    conclude(
        rate_vs_processpool=rate,
        hop_vs_processpool=hop,
        loop_rate_vs_processpool=loop_rate,
        loop_hop_vs_processpool=loop_hop,
    )


if __name__ == "__main__":
    main()
