"""Who brings a file from one node to another? An allocation that spans machines can; on one it is only a second name."""

# Paths stay text, as in all that runs for each task.
# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH120

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

from cantle.model.resources import Node

if TYPE_CHECKING:
    from cantle.runner.calling.store import Store


class Errand(msgspec.Struct, frozen=True):
    """Bring the file `path` of the node `source` to the node `to`; None stands for the conductor itself.

    There it lies at the path `at`, or, when that is "", in a folder of ours by its `name`, until it is discarded or nobody is
    left there. It stays where it was.
    """

    path: str
    source: Node | None
    to: Node | None
    name: str
    at: str = ""


class Carried(msgspec.Struct, frozen=True):
    """It lies at `path` now; or there is a `problem`, and perhaps it is `gone` from where it was."""

    path: str = ""
    size: int = 0
    problem: str = ""
    gone: bool = False


Then: TypeAlias = Callable[[Carried], None]


@runtime_checkable
class Carrier(Protocol):
    """Brings files from node to node. Called in the loop's thread, never waits, and answers there as well."""

    def carry(self, errand: Errand, then: Then) -> None:
        """Bring it; `then` is told what came of it, unless the run is over before."""

    def discard(self, names: Sequence[str], to: Iterable[Node | None]) -> None:
        """What was brought to these nodes by these names is not needed any more."""


def give_second_name(path: str, targets: Iterable[str]) -> Carried:
    """Let a file of this machine lie at the first of these paths at which it can, so that it outlives its own name."""
    problem = f"{path}: there is no place to copy it to"
    for target in targets:
        beside = f"{target}.{os.getpid()}.part"
        try:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            _link_or_copy(path, beside)
            os.replace(beside, target)
            return Carried(target, os.stat(target).st_size)  # noqa: PTH116
        except FileNotFoundError:
            return Carried(problem=f"{path} is not there any more", gone=True)
        except OSError as error:
            problem = f"{error.filename2 or error.filename or target}: {error.strerror}"
            with suppress(OSError):
                os.unlink(beside)
    return Carried(problem=problem)


def _link_or_copy(path: str, beside: str) -> None:
    try:
        os.link(path, beside)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        from shutil import copyfile

        copyfile(path, beside)


class Shelf:
    """Where what was brought to this machine lies: in memory, or in the folder `spare` when there is no room.

    It is made when it is first needed, and removed with all that lies there when it is closed, or this process is gone.
    """

    def __init__(self, run: str, spare: str) -> None:
        self._run = run
        self.spare = spare
        self._store: Store | None = None

    def paths(self, name: str) -> list[str]:
        """Where a file of this name may lie, the best first."""
        if self._store is None:
            from cantle.runner.calling.store import Store

            self._store = Store(self._run, self.spare)
        return list(dict.fromkeys(os.path.join(folder, name) for folder in (self._store.folder, self._store.spare)))

    def remove(self, names: Iterable[str]) -> None:
        """Remove these files, if they are here."""
        for name in names if self._store is not None else ():
            for path in self.paths(name):
                with suppress(OSError):
                    os.unlink(path)

    def close(self) -> None:
        """Remove all."""
        if self._store is not None:
            self._store.close()


class OneMachine:
    """Brings files where all nodes stand on the conductor's machine."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def carry(self, errand: Errand, then: Then) -> None:
        """Give the file a second name."""
        at = [errand.at] if errand.at else self._shelf.paths(errand.name)
        then(Carried(errand.path) if errand.at == errand.path else give_second_name(errand.path, at))

    def discard(self, names: Sequence[str], to: Iterable[Node | None]) -> None:  # noqa: ARG002 - it is one machine
        """Remove the second names."""
        self._shelf.remove(names)
