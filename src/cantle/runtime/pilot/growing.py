"""Does what a program hands in keep to the rules, and which records does it make?

A program is ours only as far as somebody has written it: what it says may name steps, functions or calls that are not there.
Nothing of such a message enters the run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from math import isfinite

from cantle.core.spans import Spans
from cantle.core.studies import StudyState
from cantle.model.study import MOST_STREAMS, Step, Task
from cantle.runtime.pilot.sitting_messages import NewTask, NewTasks

Known = tuple[NewTask, tuple[int, ...]]
"""A call, with the run's numbers of what it takes."""


class Breach(Exception):
    """A program broke the rules of the conversation: the message says which."""


def check_steps(study: StudyState, steps: list[Step]) -> None:
    """Raises Breach when the study takes no more, or one of them asks for what no step can ask for."""
    _check_grows(study)
    for step in steps:
        if problem := _unsound(step):
            raise Breach(f"the step {step.name!r} {problem}")


def check_calls(study: StudyState, message: NewTasks, functions: Container[str]) -> None:
    """Raises Breach when one of the calls does not fit to what was handed in before."""
    _check_grows(study)
    known = study.known
    if message.first != known:
        raise Breach(f"it hands in calls from number {message.first} on, but {known} are known")
    steps = len(study.step_numbers)
    for own, call in enumerate(message.tasks, known):
        if not 0 <= call.step < steps:
            raise Breach(f"call {own} ({call.name}) is of step {call.step}, and {steps} are known")
        if call.function not in functions:
            raise Breach(f"call {own} ({call.name}) is of a function that was not handed in: {call.function[:16]!r}")
        if call.parents or call.after or call.takes:
            for other in (*call.parents, *call.after):
                if not 0 <= other < own:
                    raise Breach(f"call {own} ({call.name}) waits for call {other}, which was not handed in before it")
            if not {*call.takes} <= {*call.parents}:
                raise Breach(f"call {own} ({call.name}) takes results of calls that are not among its parents")
        if not (isfinite(call.estimate_s) and call.estimate_s >= 0):
            raise Breach(f"call {own} ({call.name}) is said to take {call.estimate_s} seconds")


def numbers_of(study: StudyState, own: Iterable[int]) -> list[int]:
    """The run's numbers of the program's own. Raises Breach when one is not known."""
    tasks = study.tasks
    known = tasks.known
    numbers = []
    for number in own:
        if not 0 <= number < known:
            raise Breach(f"it speaks of call {number}, and {known} are known")
        numbers.append(tasks.number(number))
    return numbers


def rows_of(
    calls: list[NewTask], first: int, own: Spans, step_number: Callable[[int], int], into: dict[int, Known]
) -> list[Task]:
    """The tasks of these calls, which the run will number from `first` on; `into`: what their launch needs."""
    known = own.known
    ahead = first - known
    number_of = own.number
    rows = []
    for at, call in enumerate(calls, known):
        parents, takes = call.parents, call.takes
        if parents:
            parents = tuple([each + ahead if each >= known else number_of(each) for each in parents])
            takes = tuple([each + ahead if each >= known else number_of(each) for each in takes])
        after = call.after
        if after:
            after = tuple([each + ahead if each >= known else number_of(each) for each in after])
        rows.append(Task(call.name, step_number(call.step), parents, call.estimate_s, after))
        into[at] = (call, takes)
    return rows


def _check_grows(study: StudyState) -> None:
    if not study.grows:
        raise Breach("it hands in more after it said that it leaves")


def _unsound(step: Step) -> str:
    """What is wrong with it, "" when nothing is."""
    needs = step.needs
    counts = {
        "cores": needs.cores,
        "gpus": needs.gpus,
        "memory": needs.memory_mib,
        "retries": step.retries,
        "ranks": step.ranks,
        "streams": step.streams,
        **dict(needs.named),
    }
    if wrong := [f"{key} {n}" for key, n in counts.items() if n < 0]:
        return f"asks for {wrong[0]}"
    if needs.nodes < 1 or step.streams > MOST_STREAMS or step.cores_per_rank < 1:
        return f"asks for {needs.nodes} nodes, {step.streams} streams, {step.cores_per_rank} cores for each rank"
    if step.widths and (list(step.widths) != sorted({*step.widths}) or step.widths[0] != needs.nodes):
        return f"has widths {step.widths} that do not rise from the {needs.nodes} nodes that it needs"
    if step.times_s and len(step.times_s) != len(step.widths):
        return f"has {len(step.times_s)} times for {len(step.widths)} widths"
    if not all(map(isfinite, (step.priority, step.walltime_s, *step.times_s))) or step.walltime_s < 0:
        return f"has a priority of {step.priority} and a walltime of {step.walltime_s} seconds"
    return ""
