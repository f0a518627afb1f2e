"""Do conductor and runner speak the same language? The version alone does not tell while somebody works on the code."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from cantle import __version__

_SPOKEN = ("runner", "model", "allocations/fleet")
"""Where it is written what is said, and how it is taken."""


@cache
def version() -> str:
    """The version, with a short digest of the code that both sides must have alike."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for folder in _SPOKEN:
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{__version__}, build {digest.hexdigest()[:12]}"
