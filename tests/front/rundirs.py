"""Directories of runs, made without running anything: a simulated run's records, written with the real journal."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.records import AnyRecord, Event, RunStarted, StudyAdded, TasksAdded
from cantle.model.resources import Node
from cantle.model.study import Limits, PartitionWish, Step, Task
from cantle.runtime.loop import run
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.store.journal import Journal
from cantle.store.layout import Layout

START = 1_900_000_000.0
"""When simulated runs begin, in seconds since the epoch: simulated time starts at 0, and a run's on a day."""


SWEEP = """\
description:
    name: sweep
    description: a few simulations and a report
study:
    - name: sim
      description: simulate
      run:
          cmd: sim --size $(SIZE)
          procs: 2
          estimate: 10 s
    - name: report
      description: put it together
      run:
          cmd: report
          depends: [sim_*]
global.parameters:
    SIZE:
        values: [1, 2, 3, 4]
        label: SIZE.%%
"""
"""A study: four simulations, and a report on them. Nothing of it can be run."""

NO_LIMITS = Limits()


class Shifted:
    """Keeps records, with times as they would be had the run begun at `START`."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []

    def write(self, record: AnyRecord) -> None:
        from msgspec.structs import replace

        self.records.append(replace(record, time=record.time + START))

    def flush(self) -> None:
        pass


def records_of(
    steps: Sequence[Step],
    tasks: Sequence[Task],
    fate: Callable[[int, int], Fate] = lambda _task, _attempt: Fate(10.0),
    *,
    nodes: Sequence[Node] = (Node("here", 2),),
    directory: Path | str = "",
    limits: Limits = NO_LIMITS,
    asked: Sequence[Event] = (),
    start_s: float = 0.5,
    until: int | None = None,
    partitions: tuple[PartitionWish, ...] = (),
) -> list[AnyRecord]:
    """What a whole run would have written down, or the first `until` records of it."""
    state = State()
    log = Shifted()
    world = SimulatedWorld(state, [(0.0, list(nodes))], fate, start_s=start_s)
    for event in asked:
        world.put(event)
    for record in (
        RunStarted(0.0, "demo-1", "0", "here", 1),
        StudyAdded(0.0, "demo", list(steps), directory=str(directory), limits=limits, partitions=partitions),
        TasksAdded(0.0, 0, list(tasks)),
    ):
        log.write(record)
        state.apply(record)
    run(state, world, log, Decider())
    return log.records[:until]


def write_run(directory: Path, records: Sequence[AnyRecord]) -> Path:
    """Make the directory of a run with these records."""
    layout = Layout(directory).create()
    with Journal.open_new(layout.journal) as journal:
        for record in records:
            journal.write(record)
    return directory


def demo(directory: Path, until: int | None = None, **more: Any) -> Path:
    """Two simulations, one of which fails, and a report for each: done, failed, done, skipped."""
    steps = [Step("sim"), Step("report")]
    tasks = [
        Task("sim_N.1", 0, (), 0.0, (), "sim/N.1", "N:1"),
        Task("sim_N.2", 0, (), 0.0, (), "sim/N.2", "N:2"),
        Task("report_N.1", 1, (0,), 0.0, (), "report/N.1", "N:1"),
        Task("report_N.2", 1, (1,), 0.0, (), "report/N.2", "N:2"),
    ]
    fates = {1: Fate(4.0, "failed")}
    return write_run(
        directory,
        records_of(steps, tasks, lambda task, _: fates.get(task, Fate(10.0)), directory=directory, until=until, **more),
    )


class Conductor:
    """A process that holds the lock of a run's directory and does what its few lines say, until it is killed."""

    def __init__(self, directory: Path, body: str = "") -> None:
        text = f"""
            import sys, time
            from pathlib import Path
            from cantle.store.layout import Layout
            from cantle.store.lock import ConductorLock
            from cantle.store.journal import Journal
            from cantle.store.requests import Requests
            from cantle.model.records import *
            layout = Layout({str(directory)!r})
            lock = ConductorLock(layout.lock, "demo")
            lock.acquire()
            journal = Journal.reopen(layout.journal)
            print("ready", flush=True)
        """
        program = textwrap.dedent(text) + textwrap.dedent(body) + "\ntime.sleep(600)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Conductor:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def cantle(*words: object) -> int:
    """Run the command line in this process; its exit status."""
    from cantle.cli.main import main

    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("the command line returned without an exit status")
