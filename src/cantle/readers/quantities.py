"""How long, and how much? Durations, walltimes and amounts of memory as people write them."""

from __future__ import annotations

import math
import re

# Patterns as text: re compiles them when they are first used, and many a study uses none.
_CLOCK = r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+(?:\.\d+)?))?"
_AMOUNT = r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)"
_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_NO_BOUND = {"inf", "infinite", "infinity", "unlimited"}

MOST_S = 1e12
"""Longer than anything lasts, and short enough to reckon with: 30,000 years."""
MOST_MIB = 10**12

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPELLINGS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_BYTES = {"b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _BYTES[_letter] = _BYTES[f"{_letter}b"] = 1000**_power
    _BYTES[f"{_letter}ib"] = 1024**_power


def duration_s(text: str) -> float:
    """Seconds of `90`, `90 s`, `5 min`, `1 h 30 min` or `1:30:00` (the last field is seconds). Raises ValueError."""
    return _bounded(_duration_s(text), text)


def _duration_s(text: str) -> float:
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if ":" in text:
        match = re.fullmatch(_CLOCK, text)
        if match:
            days, *fields = match.groups()
            clock = [float(field) for field in fields if field]
            return float(days or 0) * 86400 + sum(value * 60.0**i for i, value in enumerate(reversed(clock)))
    elif text and re.sub(_AMOUNT, "", text).strip(" ,") == "":
        return sum(float(number) * _SECONDS[_unit(word)] for number, word in re.findall(_AMOUNT, text))
    raise ValueError(f"{text!r} is not a duration")


def walltime_s(text: str, *, hours_first: bool = False) -> float:
    """Seconds of a walltime as batch systems write it; 0 means no bound.

    A number is minutes. `H:M:S`, `D-H`, `D-H:M` and `D-H:M:S` are as Slurm has them. Two fields are minutes and seconds, or
    with `hours_first` hours and minutes, as LSF has them. Durations with units are understood too. Raises ValueError.
    """
    return _bounded(_walltime_s(text.strip(), hours_first), text)


def _walltime_s(text: str, hours_first: bool) -> float:
    if text.lower() in _NO_BOUND:
        return 0.0
    if re.fullmatch(_NUMBER, text):
        return float(text) * 60
    match = re.fullmatch(_CLOCK, text)
    if not match:
        return _duration_s(text)
    days, first, second, third = match.groups()
    a, b, c = float(first), float(second or 0), float(third or 0)
    if days is not None:
        return float(days) * 86400 + a * 3600 + b * 60 + c
    if third is not None or hours_first:
        return a * 3600 + b * 60 + c
    return a * 60 + b


def clock(seconds: float) -> str:
    """`HH:MM:SS`, rounded up to whole seconds."""
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def is_tidy_clock(text: str) -> bool:
    """Whether each field after the first is below 60, so that every batch system reads it alike."""
    match = re.fullmatch(_CLOCK, text.strip())
    if not match or ":" not in text:
        return False
    days, _, second, third = match.groups()
    if days is not None and int(match.group(2)) >= 24:
        return False
    return all(field is None or float(field) < 60 for field in (second, third))


def memory_mib(text: str) -> int:
    """Whole MiB, rounded up, of `4 GB` (10^9), `512 MiB` (2^20) or `512`, which is MiB already. Raises ValueError."""
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return math.ceil(_bounded(float(text), text, MOST_MIB))
    match = re.fullmatch(_AMOUNT, text)
    factor = _BYTES.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not an amount of memory")
    return math.ceil(_bounded(float(match.group(1)) * factor / 2**20, text, MOST_MIB))


def _bounded(number: float, text: str, most: float = MOST_S) -> float:
    if number > most:
        shown = text if len(text) < 40 else f"{text[:20]}..."
        raise ValueError(f"{shown!r} is more than there is of anything")
    return number


def _unit(word: str) -> str:
    try:
        return _SPELLINGS[word.lower()]
    except KeyError:
        raise ValueError(f"{word!r} is not a unit of time") from None
