"""What people do in wide plots, and what breaks."""

from __future__ import annotations

import msgspec
from carved_plots import NAMES, wishes
from hypothesis import strategies as st
from plots import limits, seconds, some_nodes
from wide_plots import HOLDER

from cantle.model.kinds import Kind
from cantle.model.records import (
    CancelAsked,
    DrainTimeSet,
    ElementsAsked,
    Event,
    KindsDeclared,
    LimitsChanged,
    NodeDrainAsked,
    NodeLost,
    NodeReleased,
    NodeResumeAsked,
    NodesJoined,
    NodesWished,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionFailed,
    PartitionResizeAsked,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
    StopAsked,
)
from cantle.model.resources import Node

SOMETIMES = st.sampled_from([False, False, False, True])


@st.composite
def carved(draw: st.DrawFn, name: str) -> object:
    """A partition, perhaps one that hosts an engine, or that stands for elements."""
    wish = draw(wishes(name))
    if draw(SOMETIMES):
        return msgspec.structs.replace(wish, engine="dask")
    if draw(SOMETIMES):
        return msgspec.structs.replace(wish, elements=draw(wants()))
    return wish


def wants() -> st.SearchStrategy[str]:
    return st.sampled_from(["1 x 1", "2 x 1", "1 x 2", "1 x 2 + 1 x 1, at most 1", "1 x 3 or 2 x 1"])


@st.composite
def nodes(draw: st.DrawFn, kinded: bool) -> list[Node]:
    """Some end, some share a machine, some stand apart."""
    names = ["", "big", "cpu", "gpu"] if kinded else ["", "big"]
    return [
        msgspec.structs.replace(
            node,
            name=f"{node.name}.{draw(st.integers(0, 2))}",
            kind=draw(st.sampled_from(names)),
            machine=draw(st.sampled_from([node.name, node.name, "m0"])),
            apart=draw(SOMETIMES),
        )
        for node in draw(some_nodes())
    ]


@st.composite
def acts(draw: st.DrawFn, kinds: list[Kind], names: list[str], tasks: int, count: int, kinded: bool) -> list[Event]:
    """What people do, and what breaks."""
    at = draw(st.integers(0, 60)) / 4
    task = st.integers(0, max(0, tasks - 1))
    some_tasks = st.lists(task, min_size=1, max_size=3)
    index = st.integers(0, count)
    study = draw(st.integers(-1, 2))
    name = draw(st.sampled_from(NAMES[:2]))
    kind = draw(st.sampled_from(["nodes", "nodes", "results", "tasks", "partitions", "scaling", "scaling"]))
    if kind == "nodes":
        called = draw(st.sampled_from(names))
        match draw(st.integers(0, 5)):
            case 0 | 1:
                return [NodeLost(at, draw(index), "mishap")]
            case 2:
                return [NodesJoined(at, draw(nodes(kinded)))]
            case 3:
                return [NodeDrainAsked(at, called, "me", draw(st.booleans()))]
            case 4:
                return [NodeDrainAsked(at, called, "me"), NodeResumeAsked(at + draw(seconds), called, "me")]
            case _:
                return [DrainTimeSet(at, draw(st.sampled_from([0.0, 0.5, 3.0])))]
    if kind == "results":
        match draw(st.integers(0, 3)):
            case 0:
                return [ResultsForgotten(at, draw(some_tasks))]
            case 1:
                return [ResultsLost(at, draw(some_tasks), draw(index), "removed")]
            case 2:
                return [ResultsLost(at, draw(some_tasks), -1, "removed")]
            case _:
                return [ResultsMoved(at, draw(some_tasks), draw(index), draw(index))]
    if kind == "tasks":
        match draw(st.integers(0, 5)):
            case 0 | 1:
                return [CancelAsked(at, draw(some_tasks), "me")]
            case 2:
                return [CancelAsked(at, None, "me", study if study >= 0 else None)]
            case 3 | 4:
                return [LimitsChanged(at, draw(limits()), max(0, study))]
            case _:
                return [StopAsked(at, "enough", draw(st.booleans()))]
    if kind == "scaling" and kinds:
        which = draw(st.sampled_from(kinds)).name
        match draw(st.integers(0, 4)):
            case 0 | 1:
                return [NodesWished(at, which, draw(st.integers(0, 3)), "me")]
            case 2:
                return [
                    NodesWished(at, which, draw(st.integers(0, 3)), "me"),
                    NodesWished(at + draw(seconds), which, None, "me"),
                ]
            case 3:
                return [KindsDeclared(at, kinds[:1])]
            case _:
                return [NodeReleased(at, draw(index), "it is locked")]
    match draw(st.integers(0, 6)):
        case 0:
            return [PartitionAsked(at, draw(carved(name)), study, "you")]  # type: ignore[arg-type]
        case 1 | 2:
            return [PartitionResizeAsked(at, name, draw(st.integers(1, 4)), "you", study)]
        case 3:
            return [PartitionDrainAsked(at, name, "you", study)]
        case 4:
            return [PartitionCancelAsked(at, name, "you", study)]
        case 5:
            return [ElementsAsked(at, HOLDER, draw(wants()), "you", study)]
        case _:
            return [PartitionFailed(at, draw(st.integers(0, 5)), "it broke")]
