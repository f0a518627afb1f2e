"""Which policies are meant by their names, and what is said when there is none of that name?

`payoff` or `payoff:2`, `demand`, `fixed:8` or `fixed:cpu=8,gpu=2`, `no-progress:60s`, `eta:10min`, `no-nodes`,
`finish-by:2h`, `cheapest`. What somebody wishes for (`NodesWished`) always counts; `module:function` names a function whose
wishes they are, see `snapshot.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from cantle.core.scaling import policies
from cantle.core.scaling.frame import Frame
from cantle.core.scaling.look import Opinion
from cantle.core.scaling.seam import Scaler
from cantle.core.scaling.settings import Scaling
from cantle.errors import RequestError

_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WITHOUT: dict[str, Opinion] = {
    "demand": policies.demand,
    "no-nodes": policies.no_nodes,
    "cheapest": policies.cheapest,
}
_WITH_TIME: dict[str, Callable[[float], Opinion]] = {
    "no-progress": policies.no_progress,
    "eta": policies.eta_beyond,
    "finish-by": policies.finish_by,
}
_PAYOFF = "payoff"
NAMES = (_PAYOFF, *_WITHOUT, *_WITH_TIME, "fixed")
"""The policies that are built in."""

DEFAULT = (_PAYOFF,)
"""Who is asked where nobody is named."""
_DIGITS = 18
"""No number of nodes has more."""


def scaler_of(
    settings: Scaling, open_ended: Callable[[], bool] = lambda: False, others: Mapping[str, Scaler] | None = None
) -> Frame:
    """The scaler for these settings. `others`: those that are not built in, by the name by which the settings call them.

    Raises RequestError for a name that nobody bears, and for an argument that makes no sense.
    """
    opinions: dict[str, Opinion] = {}
    scalers: dict[str, Scaler] = {}
    for text in settings.policies or DEFAULT:
        if others is not None and text in others:
            scalers[text] = others[text]
        elif text.partition(":")[0] == _PAYOFF:
            scalers[text] = _payoff(text)
        elif is_built_in(text):
            opinions[text] = opinion_of(text)
    opinions["wishes"] = policies.wishes
    return Frame(settings, opinions, scalers, open_ended)


def require_known(policies: Sequence[str], others: Mapping[str, object] | None = None) -> None:
    """Raises RequestError when one of them is neither built in nor looks like `module:function`."""
    for text in policies:
        if is_built_in(text) and text not in (others or {}):
            check(text)


def is_built_in(text: str) -> bool:
    """Whether a built-in policy is meant, rather than a function as in `module:function`."""
    name, colon, attribute = text.partition(":")
    return name in NAMES or not (
        colon and attribute.replace(".", "").isidentifier() and name.replace(".", "").isidentifier()
    )


def check(text: str) -> None:
    """Raises RequestError when no policy is meant by that."""
    if text.partition(":")[0] == _PAYOFF:
        _payoff(text)
    else:
        opinion_of(text)


def _payoff(text: str) -> Scaler:
    from cantle.core.scaling.payoff import Payoff

    return Payoff(worth_of(text))


def worth_of(text: str) -> float:
    """What time is worth, in `payoff` or `payoff:2`. Raises RequestError."""
    from cantle.core.scaling.payoff import WORTH

    _, colon, argument = text.partition(":")
    try:
        worth = float(argument) if colon else WORTH
    except ValueError:
        worth = -1.0
    if not 0.0 <= worth < 1000.0:
        raise RequestError(
            f"scaling policy {text}: {argument!r} is not what time is worth; payoff:3 means that to be over one percent sooner "
            "is worth three percent more cost"
        )
    return worth


def opinion_of(text: str) -> Opinion:
    """The built-in policy that is meant, as in `eta:10min`. Raises RequestError."""
    name, colon, argument = text.partition(":")
    if name in _WITHOUT:
        if colon:
            raise RequestError(f"scaling policy {text}: {name} takes no argument")
        return _WITHOUT[name]
    if name in _WITH_TIME:
        return _WITH_TIME[name](seconds(argument, text))
    if name == "fixed":
        return policies.fixed(_counts(argument, text))
    from difflib import get_close_matches

    near = get_close_matches(name, NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise RequestError(f"there is no scaling policy {name!r}; there are {', '.join(NAMES)}{hint}")


def seconds(argument: str, text: str) -> float:
    """`90`, `90s`, `1.5 h` as seconds. Raises RequestError."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", argument)
    if found is None or found[2] not in _UNITS:
        raise RequestError(f"scaling policy {text}: {argument!r} is no duration; write it like 90s, 10min or 2h")
    return float(found[1]) * _UNITS[found[2]]


def _counts(argument: str, text: str) -> dict[str, int]:
    counts = {}
    for part in argument.split(","):
        kind, equals, number = part.rpartition("=")
        if not number.strip().isdecimal() or len(number) > _DIGITS or (equals and not kind.strip()):
            raise RequestError(
                f"scaling policy {text}: {part!r} is no number of nodes; write it like fixed:8 or fixed:cpu=8,gpu=2"
            )
        counts[kind.strip()] = int(number)
    return counts
