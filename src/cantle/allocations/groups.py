"""How are several nodes written in a few characters? `8x4` is eight nodes of four cores, `2x64:4@fat,10x8` two sorts."""

from __future__ import annotations

import re

import msgspec

from cantle.errors import RequestError

_GROUP = re.compile(r"(?:(\d+)x)?(\d+)(?::(\d+))?(?:@([\w.-]+))?")


class Group(msgspec.Struct, frozen=True):
    """Equal nodes. `cores` and `gpus` are those of each node; `gpus` None: nothing is said about them."""

    count: int
    cores: int
    gpus: int | None = None
    kind: str = ""


def parse_groups(text: str) -> list[Group]:
    """Groups from `COUNTxCORES[:GPUS][@KIND]`, joined by commas or pluses; no count: one node. Raises RequestError."""
    groups = []
    for part in text.replace(" ", "").replace("+", ",").split(","):
        match = _GROUP.fullmatch(part)
        if match is None or not int(match[2]):
            raise RequestError(f"{part!r} is no group of nodes: write COUNTxCORES:GPUS, as in 10x8 or 4x64:8")
        gpus = None if match[3] is None else int(match[3])
        groups.append(Group(int(match[1] or 1), int(match[2]), gpus, match[4] or ""))
    if not sum(group.count for group in groups):
        raise RequestError(f"{text!r} is no node at all: write COUNTxCORES:GPUS, as in 10x8 or 4x64:8")
    return groups
