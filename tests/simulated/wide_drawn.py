"""What hypothesis draws of wide plots. See `wide_plots.py`."""

from __future__ import annotations

import msgspec
from carved_plots import NAMES
from hypothesis import strategies as st
from plots import BAD, FORERUNNERS, LARGE, limits, needs, seconds
from tests.simulated.growing_rig import POLICIES
from wide_acts import SOMETIMES, acts, carved, nodes
from wide_plots import HOLDER, KINDS, Part, WidePlot

from builders import Job
from cantle.core.scaling.settings import Scaling
from cantle.model.kinds import Kind
from cantle.model.resources import Needs, Node
from cantle.model.study import Slice, Slicing
from cantle.runtime.simulated import Fate

MIB = 1 << 20


@st.composite
def parts(draw: st.DrawFn, quick: bool, kept: bool) -> list[Part]:
    """One study or several, some of which grow."""
    found: list[Part] = []
    names: list[str] = []
    for number in range(draw(st.sampled_from([1, 1, 2, 3]))):
        slicing = draw(slicings())
        homes = draw(st.sampled_from([("",), ("",), ("", "p0"), ("", "p0", "p1", HOLDER)]))
        choices = draw(st.sampled_from([[()], [()], [(), (1, 2), (1, 3), (2, 3)]]))
        own: list[str] = []
        stretches = []
        for stretch in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            jobs = []
            if quick and not number and not stretch:
                jobs = [Job(f"f{i}") for i in range(FORERUNNERS)]
            for _ in range(draw(st.integers(1, 5))):
                name = f"t{len(names)}"
                jobs.append(draw(one_job(name, own, homes, choices, quick, kept)))
                own.append(name)
                names.append(name)
            stretches.append(jobs)
        found.append(
            Part(
                draw(seconds) if number else 0.0,
                stretches,
                [draw(seconds) for _ in stretches[1:]],
                draw(limits()),
                draw(st.sampled_from([1.0, 1.0, 3.0])),
                draw(st.sampled_from([0.0, 0.0, 1.0])),
                tuple(draw(carved(name)) for name in NAMES if draw(SOMETIMES)),
                slicing,
            )
        )
    return found


@st.composite
def one_job(
    draw: st.DrawFn,
    name: str,
    before: list[str],
    homes: tuple[str, ...],
    choices: list[tuple[int, ...]],
    quick: bool,
    kept: bool,
) -> Job:
    some = st.lists(st.sampled_from(before[-6:]), max_size=3, unique=True) if before else st.just([])
    if quick and draw(st.integers(0, 2)):
        return Job(name, tuple(before[-1:]), (), Needs(), 0.0, draw(st.sampled_from([0, 1])))
    widths = draw(st.sampled_from(choices))
    return Job(
        name,
        tuple(draw(some)),
        tuple(draw(some)) if draw(st.integers(0, 2)) == 0 else (),
        draw(needs()),
        draw(st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, 30.0])),
        draw(st.sampled_from([0, 0, 1, 2])),
        draw(st.booleans()),
        draw(st.sampled_from([0.0, 0.0, 1.0])),
        draw(st.sampled_from([0.0, 0.0, 2.0, 20.0])),
        partition=draw(st.sampled_from(homes)),
        widths=widths,
        streams=draw(st.sampled_from([0, 0, 6])),
        local=("x",) if kept and draw(SOMETIMES) else (),
    )


@st.composite
def slicings(draw: st.DrawFn) -> Slicing | None:
    if draw(st.integers(0, 2)):
        return None
    one = st.builds(Slice, st.integers(1, 3), st.integers(1, 2), st.sampled_from([0, 0, 1, 2]))
    return Slicing(tuple(draw(st.lists(one, min_size=1, max_size=2))), 0, draw(st.sampled_from([0, 0, 1, 2])))


@st.composite
def kinds(draw: st.DrawFn) -> list[Kind]:
    return [
        msgspec.structs.replace(
            KINDS[name],
            least=draw(st.sampled_from((0, 0, 1))),
            most=draw(st.integers(1, 5)),
            starts_in_s=draw(st.sampled_from((0.0, 1.0, 4.0))),
            cost=draw(st.sampled_from((1.0, 3.0))),
            lasts_s=draw(st.sampled_from((0.0, 0.0, 15.0))),
            block=draw(st.sampled_from((1, 1, 2))),
            adds=draw(st.sampled_from((True, True, True, False))),
            removes=draw(st.sampled_from((True, True, False))),
            stays_s=draw(st.sampled_from((0.0, 3.0))),
        )
        for name in draw(st.sampled_from((["big"], ["cpu"], ["cpu", "gpu"], ["cpu", "big"])))
    ]


@st.composite
def ending(draw: st.DrawFn, at: float, group: list[Node]) -> list[Node]:
    lives = st.sampled_from([0.0, 0.0, 0.0, 2.0, 6.0, 15.0])
    return [msgspec.structs.replace(n, ends_at=at + life if (life := draw(lives)) else 0.0) for n in group]


@st.composite
def wide_plots(draw: st.DrawFn) -> WidePlot:
    """Anything may go wrong."""
    quick = draw(SOMETIMES)
    kept = draw(st.booleans())
    the_kinds = draw(st.just([]) | kinds() | kinds())
    studies = draw(parts(quick, kept))
    groups = []
    for _ in range(draw(st.integers(0 if the_kinds else 1, 3))):
        at = draw(seconds)
        groups.append((at, draw(ending(at, draw(nodes(bool(the_kinds)))))))
    if draw(st.booleans()):
        groups.append((draw(seconds), LARGE))
    names = sorted({n.name for _, group in groups for n in group} | {"cpu-1", "big-1", "big-2"})
    count = sum(len(group) for _, group in groups) + 2 * len(the_kinds)
    tasks = sum(len(jobs) for part in studies for jobs in part.stretches)
    act = acts(the_kinds, names, tasks, count, bool(the_kinds))
    mishaps = [event for found in draw(st.lists(act, max_size=6)) for event in found]
    scale = draw(st.sampled_from([0.001, 0.01])) if quick else 1.0
    fate = st.builds(
        lambda s, outcome, kept: Fate(s * scale, outcome, kept),
        seconds,
        st.sampled_from(("done",) * 14 + BAD),
        st.sampled_from([0, 10, MIB]) if kept else st.just(0),
    )
    return WidePlot(
        studies,
        groups,
        draw(st.lists(fate, min_size=1, max_size=8)),
        the_kinds,
        draw(scalings()) if the_kinds else Scaling(),
        sorted(mishaps, key=lambda event: event.time),
        draw(st.sampled_from([0.0, 0.0, 0.25])),
        draw(st.sampled_from([0.0, 0.25])),
        draw(st.sampled_from([0.0, 1.0, 4.0])),
        draw(st.sampled_from([0.0, 1.0])),
        tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))) if the_kinds else (0,),
        draw(st.sampled_from(((), ("cpu-1",), ("big-1",)))),
        quick,
        draw(st.booleans()),
        sorted(draw(st.sets(st.integers(0, 80), max_size=4))),
    )


def scalings() -> st.SearchStrategy[Scaling]:
    return st.builds(
        Scaling,
        st.sets(st.sampled_from(POLICIES), min_size=1, max_size=2).map(lambda found: tuple(sorted(found))),
        idle_s=st.sampled_from((0.0, 1.0, 20.0)),
        notice_s=st.sampled_from((0.0, 1.0, 20.0)),
        cool_down_s=st.sampled_from((0.0, 15.0)),
        stays_s=st.sampled_from((0.0, 5.0)),
        retry_s=st.just(1.0),
    )
