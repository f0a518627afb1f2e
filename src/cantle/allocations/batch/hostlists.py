"""Which hosts does a compressed list name, and which numbers a compressed count?

Batch systems write `node[1-3,7],x[01-16]` for hosts and `72(x2),36` for what each of them has. Their own commands expand
that as well, but cost a process each and need a controller that answers.
"""

from __future__ import annotations

import re
from itertools import product

_MOST = 1 << 20
"""So many hosts no machine has; a list that says so is a mistake."""


def expand(text: str) -> list[str]:
    """The hosts of a list like `node[1-3,7],x[01-16]b`, in its order. Raises ValueError with what is wrong with it."""
    hosts: list[str] = []
    for word in _words(text):
        pieces = re.split(r"\[([^\[\]]*)\]", word)  # text, inside of brackets, text, ..., text
        if any("[" in piece or "]" in piece for piece in pieces):
            raise ValueError(f"{word!r} is no list of hosts: its brackets do not match")
        choices = [_numbers(piece, word) if i % 2 else [piece] for i, piece in enumerate(pieces)]
        wanted = len(hosts)
        for choice in choices:
            wanted += len(choice) - 1
        if wanted > _MOST:
            raise ValueError(f"{word!r} names more hosts than any machine has")
        hosts += map("".join, product(*choices))
    return hosts


def counts(text: str) -> list[int]:
    """The numbers of `72(x2),36`: 72, 72, 36. Raises ValueError."""
    numbers: list[int] = []
    for word in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word.strip())
        if not match:
            raise ValueError(f"{text!r} is no list of numbers: {word.strip()!r} is neither 36 nor 36(x2)")
        times = int(match[2] or 1)
        if len(numbers) + times > _MOST:
            raise ValueError(f"{text!r} counts more hosts than any machine has")
        numbers += [int(match[1])] * times
    return numbers


def _words(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    return [word for word in (part.strip() for part in re.split(r",(?![^\[\]]*\])", text)) if word]


def _numbers(inside: str, word: str) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise ValueError(f"{word!r} is no list of hosts: {part!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"{word!r} is no list of hosts: the range {part!r} ends before it begins")
        if int(last) - int(first) >= _MOST:
            raise ValueError(f"{word!r} names more hosts than any machine has")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found
