"""What happened in a run, measured: its journal, replayed into a timeline."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.records import StudyOver
from cantle.model.resources import Node
from cantle.model.study import Commands, Study
from cantle.report.growth import Growth
from cantle.report.loading import Run, load
from cantle.report.recorder import Recorder
from cantle.report.timeline import Timeline
from cantle.runtime.bridging import mended
from cantle.store.journal import read


class Happened(msgspec.Struct):
    """A run and its timeline. `notes` tell what of it could not be read."""

    run: Run
    timeline: Timeline
    notes: list[str]
    growth: Growth

    def study(self) -> Study:
        """The run's tasks as a study that can be simulated, not run."""
        state = self.timeline.state
        added = state.studies[0].added
        return Study(
            added.name,
            state.steps,
            state.tasks,
            _no_work,
            limits=state.studies[0].limits,
            slicing=added.slicing,
            partitions=added.partitions,
        )

    def machines(self) -> list[Node]:
        """The most nodes that were there at the same time."""
        spans = self.timeline.nodes
        most: list[Node] = []
        for moment in sorted({span.joined for span in spans}):
            there = [span.node for span in spans if span.joined <= moment < max(span.left, span.joined + 1e-9)]
            if sum(node.cores for node in there) > sum(node.cores for node in most):
                most = there
        return most


def happened_in(directory: Path) -> Happened:
    """The run in a directory, up to now if it goes on. Raises RequestError when there is none, or nothing of it began."""
    run = load(directory)
    state = State()
    recorder = Recorder(state)
    growth = Growth()
    contents = read(run.layout.journal)
    for record in mended(state, contents):
        if type(record) is not StudyOver:  # that lets go of what is to be told here
            recorder.write(record)
            state.apply(record)
            growth.note(state, record)
    if not state.studies:
        raise RequestError(f"nothing is to be told of the run in {run.directory} yet: its journal names no study")
    moment = run.now if run.conductor is not None else state.now
    return Happened(run, recorder.finish(moment), [str(stretch) for stretch in contents.damaged], growth)


def _no_work(_directory: str) -> Commands:
    raise RequestError("a run's journal tells when its tasks ran, not what they ran")
