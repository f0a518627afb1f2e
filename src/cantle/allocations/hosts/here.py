"""Is this the name of the machine that we are on? Told without asking anybody, since a name server may be slow."""

from __future__ import annotations

import os


def is_here(name: str, nodename: str | None = None) -> bool:
    """Whether the name, with or without its domain, is this machine's, or one that every machine calls itself by."""
    name = name.strip("[]").lower()
    if name in ("localhost", "localhost.localdomain", "::1") or name.startswith("127."):
        return True
    own = (os.uname().nodename if nodename is None else nodename).lower()
    if name == own:
        return True
    short, dot, _ = name.partition(".")
    own_short, own_dot, _ = own.partition(".")
    return short == own_short and not (dot and own_dot) and not short.isdigit()
