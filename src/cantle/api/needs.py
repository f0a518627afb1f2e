"""What does a call of a function need, in the words of the keywords that people write?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, cast

from cantle.errors import RequestError, shown
from cantle.model.resources import Needs
from cantle.model.study import Step
from cantle.readers.quantities import duration_s, memory_mib


class Options(TypedDict, total=False):
    """Keywords of `cantle.task`, `with_options` and `Pilot.executor`.

    `cores`, `gpus`, `memory` (MiB, or text as in "4 GB") and `resources` (name: count) are per node. `nodes`: so many at once;
    `widths`: any of these numbers of nodes. `retries`: further attempts after a failure. `walltime`: seconds, or text as in
    "10 min"; the call is ended then. `estimate`: how long it takes as far as anybody knows, likewise. `priority`: higher goes
    first. `kind`: of node. `partition`: where it runs, by name. `name`: what people see instead of the function's.
    None is as if nothing had been said.
    """

    cores: int
    gpus: int
    memory: int | str
    nodes: int
    widths: Sequence[int]
    retries: int
    walltime: float | str
    estimate: float | str
    priority: float
    resources: Mapping[str, int]
    kind: str
    partition: str
    name: str


MOST = 10**9
"""No number of anything is larger."""
_KNOWN = frozenset(Options.__annotations__)


def step_of(name: str, options: Options) -> Step:
    """The step whose tasks are calls with these options. Raises RequestError with the key that is wrong."""
    if unknown := sorted(options.keys() - _KNOWN):
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], _KNOWN, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"there are {', '.join(sorted(_KNOWN))}"
        raise RequestError(f"{name}: there is no option {unknown[0]}=; {hint}")
    options = _said(options)
    given, counted = options.get("widths", ()), options.get("resources", {})
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(type(width) is int for width in given):
        raise RequestError(f"{name}: widths={given!r} is no list of whole numbers, as in [1, 2, 4]")
    if not isinstance(counted, Mapping):
        raise RequestError(f'{name}: resources={counted!r} does not say how many of what, as in {{"licence": 1}}')
    for key in ("kind", "partition", "name"):
        require_text(f"{name}: {key}=", options.get(key, ""))
    for key in counted:
        require_text(f"{name}: the name of a resource, ", key)
    priority = options.get("priority", 0.0)
    if not _is_number(priority) or not abs(priority) <= MOST:
        raise RequestError(f"{name}: priority={_short(priority)} is no number from -{MOST:,} to {MOST:,}")
    widths, named = tuple(sorted(set(given))), dict(counted)
    for key, least, value in (
        ("cores", 0, options.get("cores", 1)),
        ("gpus", 0, options.get("gpus", 0)),
        ("nodes", 1, options.get("nodes", 1)),
        ("retries", 0, options.get("retries", 0)),
        *(("widths", 1, width) for width in widths),
        *((f"resources[{key!r}]", 0, value) for key, value in named.items()),
    ):
        require_count(f"{name}: {key}=", value, least)
    if widths and "nodes" in options and options["nodes"] not in widths:
        raise RequestError(f"{name}: nodes={options['nodes']} is none of widths={widths}; leave one of them out")
    needs = Needs(
        cores=options.get("cores", 1),
        nodes=widths[0] if widths else options.get("nodes", 1),
        gpus=options.get("gpus", 0),
        memory_mib=_memory(name, options.get("memory", 0)),
        named=tuple(sorted(named.items())),
        kind=options.get("kind", ""),
    )
    return Step(
        options.get("name") or name,
        needs,
        walltime_s=_seconds(name, "walltime", options.get("walltime", 0.0)),
        retries=options.get("retries", 0),
        priority=float(priority),
        widths=widths if len(widths) > 1 else (),
        partition=options.get("partition", ""),
    )


def estimate_of(name: str, options: Options) -> float:
    """Seconds, 0 where nobody knows. Raises RequestError."""
    return _seconds(name, "estimate", _said(options).get("estimate", 0.0))


def _said(options: Options) -> Options:
    return cast("Options", {key: value for key, value in options.items() if value is not None})


def require_count(what: str, value: object, least: int) -> None:
    """Raises RequestError where it is no whole number from `least` on, or larger than anything that can be had."""
    if type(value) is not int or value < least:
        raise RequestError(f"{what}{_short(value)} is no whole number from {least} on")
    if value > MOST:
        raise RequestError(f"{what}{_short(value)} is more than the {MOST:,} that there can be of anything")


def require_text(what: str, value: object) -> None:
    """Raises RequestError where it is no text, or has something in it that cannot be printed."""
    if not isinstance(value, str):
        raise RequestError(f"{what}{_short(value)} is no text")
    if not value.isprintable():
        raise RequestError(f"{what}{_short(value)} has characters in it that cannot be printed")


def _short(value: object) -> str:
    return shown(value, 60)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(name: str, key: str, value: float | str) -> float:
    return float(_quantity(name, key, value, duration_s, "seconds"))


def _memory(name: str, value: int | str) -> int:
    return int(_quantity(name, "memory", value, memory_mib, "MiB"))


def _quantity(name: str, key: str, value: float | str, read: Callable[[str], float], unit: str) -> float:
    """What it says, as text with a unit or as a number of them."""
    if isinstance(value, str):
        try:
            return read(value)
        except ValueError as problem:
            raise RequestError(f"{name}: {key}={value!r}: {problem}") from None
    if not _is_number(value) or not 0 <= value < float("inf"):
        raise RequestError(f"{name}: {key}={_short(value)} is no number of {unit}")
    if value > MOST:
        raise RequestError(f"{name}: {key}={_short(value)} is more than {MOST:,} {unit}")
    return value
