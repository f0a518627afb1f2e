"""Which options have no effect as they are put together? Each is told once, with why and what would give it one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from cantle.allocations.providers.declared import Declared
    from cantle.model.study import Study


def may_be_unused(asked: Namespace) -> bool:
    """Whether one of those that need others is there at all: mostly none is."""
    return bool(
        asked.on_idle
        or asked.scaling
        or asked.interface
        or asked.silence
        or asked.hosts
        or asked.drain is not None
        or ((asked.kinds or asked.places or asked.cores == 0) and _of_this_machine(asked))
    )


def of_the_machine(
    asked: Namespace, kinds: Sequence[Declared], *, serves: bool, spread: bool, in_a_job: bool
) -> Iterator[str]:
    """Of the options that say where it runs. `serves`: this machine does; `spread`: others may; `in_a_job`: a batch job."""
    if not kinds:
        none = "no kinds of node are declared (--kinds, or `cantle: {kinds: ...}` in the study)"
        if asked.on_idle:
            yield f"--on-idle: {none}, and only of their nodes it is told that they are unused"
        for word in asked.scaling:
            yield f"--scaling {word}: {none}, and only their nodes come and go"
    if not spread:
        for option, value in (("--interface", asked.interface), ("--silence", asked.silence)):
            if value:
                yield f"{option}: no other machines take part; name some with -j, or let them join with --listen"
    if asked.hosts and not (asked.places or any(each.by == "hosts" for each in kinds)):
        yield "--hosts: no host is named; do so with -j, or with `hosts:` of a kind"
    if not serves:
        for option in _of_this_machine(asked):
            yield f"{option}: this machine does not serve here, unless --cores, --nodes or -j says how much of it"
    if asked.drain is not None:
        ends = asked.ends_in or in_a_job or asked.listen or any(each.kind.lasts_s for each in kinds)
        if not ends:
            yield "--drain: no node has an end that is known; say it with --ends-in, or with `lasts:` of a kind"


def _of_this_machine(asked: Namespace) -> list[str]:
    given = (
        ("--gpus", asked.gpus is not None),
        ("--memory", asked.memory is not None),
        ("--resource", bool(asked.resource)),
        ("--ends-in", bool(asked.ends_in)),
    )
    return [option for option, there in given if there]


def of_reading(asked: Namespace, reader: str, study: Study) -> Iterator[str]:
    """Of the options that say how the study is read, by the reader that has read it."""
    if reader == "wfformat":
        for option, value in (
            ("--pgen", asked.pgen),
            ("--pargs", asked.pargs),
            ("--hashws", asked.hashws),
            ("--usetmp", asked.usetmp),
            ("--launcher", asked.launcher),
            ("--slices", asked.slices),
            ("--max-active", asked.max_active),
            ("--streams", asked.streams),
        ):
            if value:
                yield f"{option}: it is for Maestro studies, and {asked.study_file} is a WfFormat instance"
    elif reader == "maestro":
        for option, given in (("--scale", asked.scale != 1.0), ("--spin", asked.spin)):
            if given:
                yield f"{option}: it is for WfFormat instances, and {asked.study_file} is a Maestro study"
        if asked.streams and not any(step.streams for step in study.steps):
            yield f"--streams: no step of {asked.study_file} says `streams: true`"
