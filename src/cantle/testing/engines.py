"""Do an engine and an allocation keep their promises? Both are tried on real processes.

The checks take a few seconds, and need nothing but a directory to work in.

    def test_my_engine_keeps_its_promises(tmp_path):
        check_engine(lambda inbox, directory: MyEngine(inbox, directory), LocalAllocation, tmp_path)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cantle.allocations.base import Allocation
from cantle.engines.base import Engine
from cantle.model.records import Event, Launch, NodeLost, NodesAwaited, NodesJoined, Stop, TaskEnded, TaskStarted
from cantle.model.resources import Node, Place
from cantle.model.seams import Inbox
from cantle.model.streams import Streams
from cantle.model.study import Command
from cantle.runtime.inbox import SelectInbox

MakeEngine = Callable[[Inbox, str], Engine]
MakeAllocation = Callable[[], Allocation]

PATIENCE_S = 120.0
"""How long a check waits for an event that must come. What does not come has failed, however slow the machine is."""
AT_ONCE_S = 20.0
"""What gives no grace ends within this also on a slow machine. Give the engine a longer grace, so that it is of use."""


class Rig:
    """An engine on an allocation's nodes, without core and journal: launch, wait, look at the events.

    A context manager; `events` holds everything that has come, in order.
    """

    def __init__(self, make_engine: MakeEngine, make_allocation: MakeAllocation, directory: Path | str) -> None:
        self.inbox = SelectInbox()
        self.events: list[Event] = []
        self.nodes: list[Node] = []
        self._given: dict[tuple[int, int], int] = {}
        self.allocation = make_allocation()
        self.engine = make_engine(self.inbox, str(directory))
        self.allocation.open(self.inbox)
        self.wait_for(lambda: any(isinstance(event, NodesJoined) for event in self.events), "no node joined")
        for event in self.events:
            if isinstance(event, NodesJoined):
                self.nodes += event.nodes
        for index, node in enumerate(self.nodes):
            self.engine.add_node(index, node, self.allocation.connect(node))

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def launch(
        self,
        task: int,
        command: Command,
        *,
        cores: str | None = None,
        gpus: str = "",
        node: int = 0,
        attempt: int = 1,
        walltime_s: float = 0.0,
        memory_mib: int = 0,
        behind: int | None = None,
        if_done: int = 0,
        on: tuple[Place, ...] = (),
        streams: Streams | None = None,
    ) -> None:
        """Launch an attempt and send it. Without `cores` it gets the lowest core that no other attempt has.

        `on` names all of its places instead; only there can it have `streams`.
        """
        if on:
            self.engine.launch(Launch(self.inbox.now(), task, attempt, on), command, walltime_s, memory_mib, streams)
            self.engine.flush()
            return
        if cores is None:
            over = {(e.task, e.attempt) for e in self.events if isinstance(e, TaskEnded)}
            self._given = {key: core for key, core in self._given.items() if key not in over}
            core = next(core for core in range(len(self._given) + 1) if core not in self._given.values())
            self._given[task, attempt] = core
            cores = str(core)
        launch = Launch(self.inbox.now(), task, attempt, (Place(node, cores, gpus),), behind=behind, if_done=if_done)
        self.engine.launch(launch, command, walltime_s, memory_mib)
        self.engine.flush()

    def stop(self, task: int, *, attempt: int = 1, why: str = "asked for", at_once: bool = False) -> None:
        """Have an attempt canceled."""
        self.engine.stop(Stop(self.inbox.now(), task, attempt, "canceled", why, at_once))
        self.engine.flush()

    def turn(self, timeout_s: float = 0.2) -> list[Event]:
        """One turn of a loop: wait, take what has come as written down, send what there is to send."""
        events = self.inbox.wait(timeout_s)
        self.events += events
        self.engine.written()
        self.engine.flush()
        return events

    def wait_for(self, happened: Callable[[], bool], otherwise: str, timeout_s: float = PATIENCE_S) -> None:
        """Turn until something has happened. Raises AssertionError when it does not."""
        stop = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < stop, f"{otherwise} within {timeout_s:g} s; events: {self.events[-5:]}"
            self.turn()

    def started(self, task: int, attempt: int = 1, timeout_s: float = PATIENCE_S) -> TaskStarted:
        """Wait until the attempt has started, whether that was told by itself or with its end."""
        found: list[TaskStarted] = []

        def look() -> bool:
            found[:] = [e for e in self.events if isinstance(e, TaskStarted) and (e.task, e.attempt) == (task, attempt)]
            found.extend(TaskStarted(e.started, task, attempt, e.pid) for e in self.ends(task, attempt) if e.started)
            return bool(found)

        self.wait_for(look, f"task {task} did not start", timeout_s)
        return found[0]

    def ended(self, task: int, attempt: int = 1, timeout_s: float = PATIENCE_S) -> TaskEnded:
        """Wait until the attempt is over."""
        self.wait_for(lambda: bool(self.ends(task, attempt)), f"task {task} did not end", timeout_s)
        return self.ends(task, attempt)[0]

    def ends(self, task: int, attempt: int = 1) -> list[TaskEnded]:
        """All ends of the attempt that have come so far; there should never be two."""
        return [e for e in self.events if isinstance(e, TaskEnded) and (e.task, e.attempt) == (task, attempt)]

    def close(self) -> None:
        """Close engine and allocation, and take what came of it."""
        self.engine.close()
        self.allocation.close()
        self.events += self.inbox.wait(0)
        self.inbox.close()


def check_engine(make_engine: MakeEngine, make_allocation: MakeAllocation, directory: Path | str) -> None:
    """Check an engine whose tasks are processes: starts, ends, failures, stops and closing are told, each once."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    with Rig(make_engine, make_allocation, place) as rig:
        assert rig.nodes, "the allocation gave no nodes"

        rig.launch(0, _shell("exit 0"))
        end = rig.ended(0)
        assert (end.outcome, end.exit_code) == ("done", 0), f"a task that exits with 0 is done, not {end}"
        assert rig.started(0).time <= end.time, "a task starts before it ends"

        rig.launch(1, _shell("echo the reason >&2; exit 3"))
        end = rig.ended(1)
        assert (end.outcome, end.exit_code) == ("failed", 3), f"a task that exits with 3 has failed with 3, not {end}"
        assert "exit code 3" in end.detail, f"the detail names the exit code: {end.detail!r}"
        assert "the reason" in end.detail, f"the detail has the last lines of stderr: {end.detail!r}"

        rig.launch(2, _shell("kill -KILL $$"))
        end = rig.ended(2)
        assert (end.outcome, end.signal) == ("failed", 9), (
            f"a task that is killed has failed with the signal, not {end}"
        )
        assert "SIGKILL" in end.detail, f"the detail names the signal: {end.detail!r}"

        rig.launch(3, Command(argv=("/nowhere/no-such-program",), output_stem="no-such-program"))
        end = rig.ended(3)
        assert end.outcome == "unstartable", f"what cannot be started is unstartable, not {end}"
        assert "no-such-program" in end.detail, f"the detail names what could not be started: {end.detail!r}"

        rig.launch(4, _shell("sleep 300"))
        rig.started(4)
        rig.stop(4, why="we have seen enough")
        end = rig.ended(4)
        assert end.outcome == "canceled", f"the end of a stopped task bears the stop's outcome, not {end}"
        assert "we have seen enough" in end.detail, (
            f"the detail of a stopped task has the stop's reason: {end.detail!r}"
        )
        rig.stop(4)  # too late: must be ignored

        rig.launch(5, _shell("exit 1"), attempt=1)
        rig.ended(5, 1)
        rig.launch(5, _shell("exit 0"), attempt=2)
        assert rig.ended(5, 2).outcome == "done", "a second attempt is told apart from the first"

        if rig.engine.keeps_lines:
            _check_lines(rig)
        if rig.engine.runs_streams:
            _check_streams(rig, place)

        rig.launch(6, _shell("sleep 300"), walltime_s=0.5)
        end = rig.ended(6)
        assert end.outcome == "timeout", f"a task that passes its walltime ends with a timeout, not {end}"

        rig.launch(7, _shell("trap '' TERM; while :; do sleep 1; done"))
        rig.started(7)
        began = time.monotonic()
        rig.stop(7, at_once=True)
        assert rig.ended(7).outcome == "canceled", "what is stopped at once bears the stop's outcome"
        assert time.monotonic() - began < AT_ONCE_S, "a stop at once gives no grace"

        rig.launch(8, _shell("sleep 300"))
        rig.started(8)
    for task, attempt in ((0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (5, 2), (6, 1), (7, 1)):
        found = rig.ends(task, attempt)
        assert len(found) == 1, f"each attempt is answered exactly once, but attempt {attempt} of task {task}: {found}"
    last = rig.ends(8)
    lost = [event for event in rig.events if isinstance(event, NodeLost)]
    assert len(last) == 1 or lost, "closing answers what still ran, by its end or by the loss of its node"


def _check_lines(rig: Rig) -> None:
    """On the very same cores attempts run one after another, and what has not begun can be stopped."""
    rig.launch(20, _shell("sleep 0.2"), cores="0")
    rig.launch(21, _shell("exit 0"), cores="0", behind=20)
    first, second = rig.ended(20), rig.ended(21)
    assert rig.started(21).time >= first.time, "what is launched behind an attempt starts after it"
    assert second.outcome == "done", f"what stood in line runs as ever, and does not end as {second}"
    rig.launch(22, _shell("sleep 300"), cores="0")
    rig.launch(23, _shell("exit 0"), cores="0", behind=22)
    rig.stop(23)
    assert rig.ended(23).outcome == "canceled", "what stands in line can be stopped"
    rig.stop(22)
    rig.ended(22)
    rig.launch(24, _shell("sleep 0.2"), cores="0")
    rig.launch(25, _shell("exit 1"), cores="0", behind=24, if_done=1)
    rig.launch(26, _shell("exit 0"), cores="0", behind=25, if_done=1)
    last = rig.ended(26)
    assert rig.ended(25).outcome == "failed", "what is launched behind an attempt that is done begins"
    assert last.outcome == "interrupted", f"what is launched to follow an attempt that fails never begins: {last}"
    assert not rig.ends(26)[0].started, "what never began is not told as started"
    order = [event.task for event in rig.events if isinstance(event, TaskEnded) and event.task >= 24]
    assert order == [24, 25, 26], "the end of an attempt is told before that of the one that follows it"


def _check_streams(rig: Rig, directory: Path) -> None:
    """A command that runs several times is one attempt: with one start, one end, and the first failure as its own."""
    one = (Place(0, "0"),)
    rig.launch(30, _shell("echo $CANTLE_STREAM of $CANTLE_STREAMS >> streams"), on=one, streams=Streams(3))
    end = rig.ended(30)
    assert end.outcome == "done", f"an attempt whose streams all succeed is done, not {end}"
    ran = (directory / "streams").read_text().splitlines()
    assert sorted(ran) == [f"{stream} of 3" for stream in range(3)], f"each stream runs once and knows itself: {ran}"
    rig.launch(31, _shell('[ "$CANTLE_STREAM" = 0 ] || exit 4'), on=one, streams=Streams(2))
    end = rig.ended(31)
    assert (end.outcome, end.exit_code) == ("failed", 4), f"the stream that fails is what is told, not {end}"
    assert len(rig.ends(30)) == len(rig.ends(31)) == 1, "an attempt with streams ends once"


def check_allocation(make_allocation: MakeAllocation) -> None:
    """Check an allocation: nodes are announced and join, runners can be reached, and go when their channels close."""
    inbox = SelectInbox()
    allocation = make_allocation()
    allocation.open(inbox)
    events: list[Event] = []
    stop = time.monotonic() + PATIENCE_S
    while not any(isinstance(event, NodesJoined) for event in events):
        assert time.monotonic() < stop, f"no NodesJoined within {PATIENCE_S:g} s of open; events: {events}"
        events += inbox.wait(0.2)
    awaited = [at for at, event in enumerate(events) if isinstance(event, NodesAwaited)]
    joined = [at for at, event in enumerate(events) if isinstance(event, NodesJoined)]
    assert awaited and awaited[0] < joined[0], (
        "NodesAwaited comes first, so that nothing is called impossible too early"
    )
    nodes = [node for event in events if isinstance(event, NodesJoined) for node in event.nodes]
    assert nodes, "NodesJoined brings at least one node"
    for node in nodes:
        assert node.name and node.cores >= 1, f"a node has a name and a core at least: {node}"
        assert len(node.core_ids) in (0, node.cores), f"a node names all of its cores or none: {node}"
        assert len(node.gpu_ids) in (0, node.gpus), f"a node names all of its GPUs or none: {node}"
    channel = allocation.connect(nodes[0])
    assert channel.fileno() >= 0, "a channel has a descriptor to wait on"
    channel.send(b"")
    began = time.monotonic()
    channel.close()
    allocation.close()
    assert time.monotonic() - began < PATIENCE_S, "closing does not hang"
    inbox.close()


def _shell(script: str) -> Command:
    return Command(argv=("/bin/sh", "-c", script), output_stem="check/task")
