"""Where do pilots lie that were begun for one program alone, and when does what lies there go?

The program that began one removes it when it leaves. When the program was killed the pilot does so itself, as the last thing
that it does. What a pilot has left that was killed stays for a while, since its log may say why, and goes when another pilot is
begun later, of whatever sort. What it has asked for elsewhere costs something: that is taken back at once, by its program, or
by whoever begins the next pilot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from time import time

from cantle.errors import MachineError
from cantle.runtime.pilot.address import pilots
from cantle.store.failures import in_words
from cantle.store.layout import Layout
from cantle.store.lock import holder

DEAD_S = 3600.0
"""So long what a pilot has left stays that did not end properly: its log may say why."""


def folder() -> Path:
    """The folder in which they lie, beside those that have names."""
    return pilots().parent / "private"


def new(name: str) -> Path:
    """A directory for one, for the program of this name. Raises MachineError."""
    parent = folder()
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f"{name.replace('/', '_')}-", dir=parent))
    except OSError as error:
        raise MachineError(f"cannot make a directory in {parent}: {in_words(error)}. Set XDG_STATE_HOME.") from error


def has_ended(layout: Layout) -> None:
    """The pilot has come to its end properly: if it lies here, it goes, unless nodes that it asked for may be left."""
    if layout.directory.parent == folder().resolve() and not _asked_for(layout):
        rmtree(layout.directory, ignore_errors=True)


def sweep(note: Callable[[str], None]) -> int:
    """Take back what dead pilots have asked for, and remove what is left of those that are long dead. How many these were."""
    swept = 0
    for layout in _dead():
        give_back(layout, note)
        if time() - _last_change(layout) > DEAD_S and not _asked_for(layout):
            rmtree(layout.directory, ignore_errors=True)
            swept += 1
    return swept


def give_back(layout: Layout, note: Callable[[str], None]) -> None:
    """Take back what the pilot there, which is dead, has asked for elsewhere; what cannot be is told, and stays on record."""
    if _asked_for(layout):
        from cantle.runtime.apart.leaving import take_back_apart

        take_back_apart(layout.elastic, note)


def _dead() -> Iterator[Layout]:
    """Those at which nobody is at work. One that is just being begun has asked for nothing yet, and is young."""
    try:
        found = sorted(folder().iterdir())
    except OSError:
        return
    for directory in found:
        layout = Layout(directory)
        if holder(layout.lock) is None:
            yield layout


def _last_change(layout: Layout) -> float:
    times = [0.0]
    for path in (layout.directory, layout.own, layout.journal, layout.lock, layout.directory / "pilot.log"):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times)


def _asked_for(layout: Layout) -> bool:
    """Whether nodes that it asked for may be left."""
    if not layout.elastic.is_dir():
        return False
    from cantle.allocations.providers.records import Records

    return bool(Records(layout.elastic).left())
