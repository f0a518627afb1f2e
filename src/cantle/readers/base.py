"""How does a file become a study? The seam that every reader fills.

`cantle.testing.check_reader` runs the conformance check on any reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from cantle.model.study import Slicing, Study


class ReadOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the command line may say about reading. A reader ignores what does not concern it.

    `pgen` is a parameter generator's file, `pargs` its `KEY:VALUE` arguments. `attempts` is the number of tries of a
    failing task for steps that say nothing themselves. `scale` multiplies recorded durations, `spin` replays them with
    busy loops instead of sleeps. `launcher` names an MPI flavour; "" takes what belongs where the nodes are. `dry`:
    nothing will run, so nothing need be fetched or present. `elsewhere`: there may be nodes other than this machine. What
    `slicing` says overrules what the study says.
    """

    pgen: str = ""
    pargs: tuple[str, ...] = ()
    hashws: bool = False
    usetmp: bool = False
    attempts: int = 1
    scale: float = 1.0
    spin: bool = False
    launcher: str = ""
    dry: bool = False
    slicing: Slicing | None = None
    elsewhere: bool = False


class Reader(Protocol):
    """Turns a file into a study."""

    name: str

    def recognises(self, path: Path) -> bool:
        """Whether this looks like one of mine (a look at the name, or at the first bytes)."""

    def read(self, path: Path, options: ReadOptions) -> Study:
        """Read the file. Raises StudyError with every problem found, each with file, line, key and mend."""

    def reopen(self, folder: Path) -> Study:
        """Make the same study again from the files that `Study.keep` asked to be kept, all in this folder."""
