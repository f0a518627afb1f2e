"""What does it cost that runners are elsewhere? Four of one core each, as processes of their own on this machine, over TLS.

Against the same four as logical nodes of the local engine, and against plain Dask that runs the same by subprocess; rates are
taken from when all four are there. A runner that is started by hand, until its first task has run, against a bare
`dask worker`, until its scheduler knows it; and of both, until a task that waited for them is done. With the full length also
200 runners that join, work and leave.
Keys: rate_vs_local, rate_vs_dask (four workers), rate_vs_dask_of_two, join_vs_dask_worker, first_task_vs_dask_worker,
cpu_vs_local (the conductor's CPU time per task), runners_200 (how many of them worked).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from measure import CANTLE, arguments, conclude, median_ratio, scratch, seconds, table

from cantle.model.records import Launch, NodesJoined, TaskEnded, TaskStarted
from cantle.store.journal import read

TASKS = 5000
NODES = 4
FEWER = 2
"""Workers of the other Dask: one for each core of a machine of two."""
ON_THE_WAY = 32
"""So many of the two hundred are started at a time; over ssh it would be 64, each on a machine of its own."""
GIVEN_UP_S = 300.0
LETTER = ".cantle/fleet/letter"
LOOP = str(Path(__file__).parent / "spawn_loop.py")
OTHERS = (
    "on a quiet machine of this kind QCG-PilotJob reached 0.24 of it, Dask with subprocess 0.17, HyperQueue 0.15, "
    "Parsl 0.10, two tasks in flight on one machine"
)
_TICKS = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """From when all nodes were there: tasks in a second, and the conductor's CPU seconds for each."""

    rate: float
    cpu_s: float


def cpu_seconds(pid: int) -> float | None:
    """What a process has used so far, without its children; None when it has gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(words[11]) + int(words[12])) / _TICKS if words[0] != "Z" else None


def watched(process: subprocess.Popen[bytes]) -> list[tuple[float, float]]:
    """The process's CPU seconds by time, until it ends."""
    samples = []
    while process.poll() is None:
        used = cpu_seconds(process.pid)
        if used is not None:
            samples.append((time.time(), used))
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"cantle ended with {process.returncode}")
    return samples


def told(out: str, samples: list[tuple[float, float]], nodes: int) -> Run:
    """Rate and cost by the journal and the samples."""
    joined = 0
    since = 0.0
    ends = []
    for record in read(f"{out}/.cantle/journal.jsonl"):
        if isinstance(record, NodesJoined):
            joined += len(record.nodes)
            if joined <= nodes:
                since = record.time
        elif isinstance(record, TaskEnded):
            ends.append(record.time)
    assert joined >= nodes, f"{joined} of {nodes} nodes came"
    after = [end for end in ends if end > since]
    at_start = min(samples, key=lambda sample: abs(sample[0] - since))[1]
    at_end = max(used for when, used in samples if when <= max(ends) + 0.02)
    return Run(len(after) / (max(after) - since), (at_end - at_start) / len(after))


def local(out: str) -> Run:
    """The local engine on four logical nodes."""
    words = [
        *CANTLE,
        "map",
        "/bin/true",
        "--env",
        "V={}",
        "--range",
        f"1-{TASKS}",
        "-q",
        "-o",
        out,
        "--nodes",
        f"{NODES}x1",
    ]
    return told(out, watched(subprocess.Popen(words)), NODES)


def start_fleet(out: str, tasks: int, command: str = "/bin/true") -> subprocess.Popen[bytes]:
    """A conductor that takes runners and uses nothing of this machine itself."""
    words = [*CANTLE, "map", command, "--env", "V={}", "--range", f"1-{tasks}", "-q", "-o", out, "--listen"]
    process = subprocess.Popen([*words, "--cores", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not Path(out, LETTER).exists():
        if process.poll() is not None:
            sys.exit("the conductor did not begin")
        time.sleep(0.005)
    return process


def start_runner(out: str, name: str) -> subprocess.Popen[bytes]:
    """A runner as a person would start it."""
    words = [*CANTLE, "runner", "--connect", out, "--cores", "1", "--name", name]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fleet(out: str) -> Run:
    """Four runners."""
    process = start_fleet(out, TASKS)
    runners = [start_runner(out, f"r{n}") for n in range(NODES)]
    run = told(out, watched(process), NODES)
    for runner in runners:
        runner.wait(30)
    return run


def dask_rate(tasks: int, workers: int) -> float:
    """Plain Dask, workers of one thread each in processes of their own, the same command by subprocess, without TLS."""
    program = f"""
import subprocess, time
from distributed import Client, LocalCluster, wait
def true(i):
    return subprocess.run(["/bin/true"]).returncode
if __name__ == "__main__":
    with LocalCluster(n_workers={workers}, threads_per_worker=1, dashboard_address=None, processes=True) as cluster:
        with Client(cluster) as client:
            client.gather(client.map(true, range(-8, 0), pure=False))
            start = time.perf_counter()
            wait(client.map(true, range({tasks}), pure=False))
            print({tasks} / (time.perf_counter() - start))
"""
    path = Path(os.environ["BENCH_ROOM"], "dask_rate.py")
    path.write_text(program)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


class Joined(NamedTuple):
    """Seconds from the start of a runner's or worker's process: until it is in, and until its first task is done."""

    there: float
    first_task: float


def join_seconds(out: str) -> Joined:
    """Of a runner: until its first task starts, and until that is done."""
    process = start_fleet(out, 1)
    begun = time.time()
    runner = start_runner(out, "first")
    if process.wait(60):
        sys.exit("the run failed")
    runner.wait(30)
    started = 0.0
    for record in read(f"{out}/.cantle/journal.jsonl"):
        if isinstance(record, TaskStarted):
            started = record.time
        if isinstance(record, TaskEnded):
            return Joined((started or record.started or record.time) - begun, record.time - begun)
    raise SystemExit("no task was done")


_DASK_SCHEDULER = """
import asyncio, subprocess, sys, time
from distributed import Client, Scheduler
from distributed.security import Security
authority, own = sys.argv[1:]
security = Security(
    require_encryption=True, tls_ca_file=authority, tls_scheduler_cert=own, tls_scheduler_key=own, tls_client_cert=own,
    tls_client_key=own,
)
async def main():
    scheduler = Scheduler(host="tls://127.0.0.1:0", security=security, dashboard=False, dashboard_address=":0")
    await scheduler
    client = await Client(scheduler.address, security=security, asynchronous=True)
    first = client.submit(subprocess.call, ["/bin/true"])  # it waits for the worker, as ours does for the runner
    print(scheduler.address, flush=True)
    while not scheduler.workers:
        await asyncio.sleep(0.002)
    print(time.time(), flush=True)
    await first
    print(time.time(), flush=True)
    await client.close()
asyncio.run(main())
"""


def dask_join_seconds(room: str) -> Joined:
    """Of a bare `dask worker`, encrypted as well: until its registration, and until a task that waits for it is done."""
    from cantle.allocations.fleet.certificates import make_identities

    ours, theirs = make_identities("bench")
    authority, scheduler, worker = (f"{room}/{name}.pem" for name in ("authority", "scheduler", "worker"))
    Path(authority).write_text(ours.authority)
    Path(scheduler).write_text(ours.key + ours.certificate)
    Path(worker).write_text(theirs.key + theirs.certificate)
    with subprocess.Popen(
        [sys.executable, "-c", _DASK_SCHEDULER, authority, scheduler],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as serving:
        assert serving.stdout is not None
        address = serving.stdout.readline().strip()
        begun = time.time()
        joining = subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("dask")), "worker", address, "--no-nanny", "--nthreads", "1"),
                *("--no-dashboard", "--tls-ca-file", authority, "--tls-cert", worker, "--tls-key", worker),
                *("--local-directory", room),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        known, done = (float(serving.stdout.readline()) for _ in range(2))
        joining.terminate()
        try:
            joining.wait(30)
        except subprocess.TimeoutExpired:
            joining.kill()  # it has joined, which is what counts; now and then it does not end
    return Joined(known - begun, done - begun)


def many(out: str, runners: int) -> tuple[int, float, float, float]:
    """So many runners: how many worked, seconds until all were there, the conductor's CPU seconds and its peak MiB."""
    gate = f"{out}.gate"
    os.mkfifo(gate)
    process = start_fleet(out, runners, f"cat {gate}")  # each waits until all have begun: so each runner has one
    begun = time.time()
    started: list[subprocess.Popen[bytes]] = []
    peak = 0.0
    used = 0.0
    there = 0
    opened = False
    while process.poll() is None:
        if not opened:
            there = sum(
                len(each.nodes) for each in read(f"{out}/.cantle/journal.jsonl") if isinstance(each, NodesJoined)
            )
            while len(started) < min(runners, there + ON_THE_WAY):
                started.append(start_runner(out, f"r{len(started)}"))
            if there == runners or time.time() > begun + GIVEN_UP_S:
                opened = True
        if opened:
            try:
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))  # whoever waits behind it is through
            except OSError:  # nobody waits just now
                pass
        used = cpu_seconds(process.pid) or used
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")))
        except (OSError, TypeError, ValueError):
            pass
        time.sleep(0.2)
    for runner in started:
        runner.wait(60)
    Path(gate).unlink()
    worked = set()
    joined = []
    for record in read(f"{out}/.cantle/journal.jsonl"):
        if isinstance(record, NodesJoined):
            joined.append(record.time)
        elif isinstance(record, Launch):
            worked.add(record.on[0].node)
    return len(worked), max(joined) - begun, used, peak


def main() -> None:
    asked = arguments(__doc__)
    rounds = asked.rounds or (1 if asked.quick else 3)
    with scratch() as room:
        os.environ["BENCH_ROOM"] = str(room)
        runs = []
        dask: dict[int, list[float]] = {NODES: [], FEWER: []}
        for n in range(rounds):  # alternated, so that a drift of the machine meets all of them
            runs.append((local(f"{room}/local-{n}"), fleet(f"{room}/fleet-{n}")))
            for workers, rates in dask.items():
                rates.append(dask_rate(1000 if asked.quick else TASKS, workers))
        joins = [(join_seconds(f"{room}/join-{n}"), dask_join_seconds(str(room))) for n in range(rounds + 2)]
        crowd = None if asked.quick else many(f"{room}/many", 200)
    rate = statistics.median(f.rate / h.rate for h, f in runs)
    cpu = statistics.median(f.cpu_s / h.cpu_s for h, f in runs)
    rates = [f.rate for _, f in runs]
    against_dask, against_fewer = (median_ratio(rates, dask[workers]) for workers in (NODES, FEWER))
    join = statistics.median(ours.there / theirs.there for ours, theirs in joins)
    first_task = statistics.median(ours.first_task / theirs.first_task for ours, theirs in joins)
    table(
        ["", "tasks/s", "conductor's CPU, us/task", "from start to work, s", "to the first task's end, s"],
        [
            [
                "four logical nodes",
                statistics.median(h.rate for h, _ in runs),
                1e6 * statistics.median(h.cpu_s for h, _ in runs),
                "",
                "",
            ],
            [
                "four runners over TLS",
                statistics.median(f.rate for _, f in runs),
                1e6 * statistics.median(f.cpu_s for _, f in runs),
                statistics.median(ours.there for ours, _ in joins),
                statistics.median(ours.first_task for ours, _ in joins),
            ],
            [
                "Dask and subprocess",
                statistics.median(dask[NODES]),
                "",
                statistics.median(theirs.there for _, theirs in joins),
                statistics.median(theirs.first_task for _, theirs in joins),
            ],
            [f"the same with {FEWER} workers", statistics.median(dask[FEWER]), "", "", ""],
        ],
    )
    loop_s = statistics.median(seconds([sys.executable, LOOP, str(TASKS), "2", "/bin/true"]) for _ in range(rounds))
    of_loop = statistics.median(f.rate for _, f in runs) * loop_s / TASKS
    print(f"\nfour runners over TLS reach {of_loop:.2f} of a bare spawn loop's rate; {OTHERS}")
    figures: dict[str, float] = {
        "rate_vs_local": rate,
        "rate_vs_dask": against_dask,
        "rate_vs_dask_of_two": against_fewer,
        "join_vs_dask_worker": join,
        "first_task_vs_dask_worker": first_task,
        "cpu_vs_local": cpu,
    }
    if crowd is not None:
        worked, joined_s, used, peak = crowd
        figures["runners_200"] = worked
        table(
            ["runners", "worked", "all there after s", "conductor's CPU s", "its peak MiB"],
            [[200, worked, joined_s, used, peak]],
        )
    conclude(**figures)


if __name__ == "__main__":
    main()
