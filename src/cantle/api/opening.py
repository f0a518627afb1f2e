"""How does a program come to a pilot: one that is up, or one that is begun for it alone?

The latter is `cantle up` in processes of its own, which no Ctrl-C in the program's terminal reaches. It ends when the program
has left, or its connection is gone.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import localtime, monotonic, sleep, strftime
from typing import TYPE_CHECKING

from cantle.errors import MachineError, RequestError, writable
from cantle.runtime.handed import FOLDER
from cantle.runtime.pilot import private
from cantle.runtime.pilot.address import directory_of
from cantle.runtime.pilot.messages import Sit
from cantle.runtime.pilot.visiting import stay
from cantle.store.layout import Layout
from cantle.store.lock import holder

if TYPE_CHECKING:
    from cantle.api.handing import HandedIn

_ENDS_WITHIN_S = 60.0
_PAUSE_S = 0.02


class Opened:
    """A seat that was taken. `own`: the directory of the pilot that was begun for it, if one was."""

    def __init__(self, name: str, directory: Path, connection: socket.socket, own: Path | None) -> None:
        self.name = name
        self.directory = directory
        self.connection = connection
        self._own = own

    @property
    def log(self) -> str:
        """Where the pilot says what goes wrong, for people."""
        return "its pilot.log" if self._own is None else str(self._own / "pilot.log")

    def close(self, parted: bool) -> None:
        """Wait until a pilot of one's own has ended, and remove what it needed.

        Of one that does not end, or went away before all was said (`parted` is false), all stays, so that it can be looked at;
        what it had asked for elsewhere is taken back.
        """
        if self._own is not None and not _await_end(self._own, remove=parted):
            private.give_back(Layout(self._own), lambda text: print(f"cantle: {text}", file=sys.stderr, flush=True))


def begin(pilot: str, directory: Path | None, name: str, words: list[str], functions: HandedIn | None = None) -> Opened:
    """Take a seat at the pilot of that name; "": at one that is begun with these words, of which some may name `functions`.

    Raises RequestError, MachineError.
    """
    if pilot and words:
        from cantle.api.complaints import in_arguments

        first = in_arguments(words[0], words)
        raise RequestError(f"the pilot {pilot} has its nodes already: leave out what asks for others ({first})")
    name = name or _program()
    if not name.strip() or not name.isprintable():
        raise RequestError(f"name={name!r} cannot be the name of a study: take letters, digits, - and _")
    study = _study_directory(directory, name)
    try:
        if pilot:
            _, connection = stay(directory_of(pilot), pilot, _sit(name, study))
            return Opened(pilot, study, connection, None)
        own, called, connection = _begun_for(name, study, words, functions)
    except BaseException:
        if directory is None:
            _remove_if_empty(study)
        raise
    Thread(target=private.sweep, args=(_unheard,), name="cantle-sweep", daemon=True).start()
    return Opened(called, study, connection, own)


def _begun_for(name: str, study: Path, words: list[str], functions: HandedIn | None) -> tuple[Path, str, socket.socket]:
    own = private.new(name)
    called = f"of {name}"
    try:
        handed = own / "handed"
        _start(own, words, handed if functions is not None and functions.put(handed) else None)
        _, connection = stay(own, called, _sit(name, study))
    except BaseException:
        _give_up(own)
        raise
    return own, called, connection


def _remove_if_empty(study: Path) -> None:
    try:
        study.rmdir()
    except OSError:
        pass


def _unheard(_: str) -> None:
    """What is told of pilots of other programs is not for this one's user."""


def _start(own: Path, words: list[str], handed: Path | None) -> None:
    command = [sys.executable, "-m", "cantle", "up", str(own), "--for-one-program", "-q", *words]
    environment = {**os.environ, "PYTHONPATH": _with_cantle(os.environ.get("PYTHONPATH", ""))}
    if handed is not None:
        environment[FOLDER] = str(handed)
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        start_new_session=True,
    )
    said = done.stdout.decode(errors="replace").strip()
    if said and not done.returncode:
        print(said, file=sys.stderr, flush=True)
    if done.returncode:
        from cantle.api.complaints import in_arguments

        kind = RequestError if done.returncode != 1 else MachineError
        raise kind(f"no pilot could be begun: {in_arguments(said, words)}")


def _with_cantle(path: str) -> str:
    """This very Cantle is to be found, also where a program has only its `sys.path` to find it."""
    here = str(Path(__file__).parent.parent.parent)
    if here not in sys.path or here in path.split(os.pathsep):
        return path
    return os.pathsep.join(filter(None, (path, here)))


def _sit(name: str, study: Path) -> Sit:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("CANTLE_")}
    environ["CANTLE_PYTHONPATH"] = os.pathsep.join(str(Path(path or ".").absolute()) for path in sys.path)
    env = {os.fsencode(key): os.fsencode(value) for key, value in environ.items()}
    return Sit(name, str(study), env, tuple(writable(word) for word in sys.argv))


def _program() -> str:
    """What the program is called, as far as one can tell."""
    word = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    if word.startswith("ipykernel"):
        return "notebook"
    return word if word.isidentifier() and not word.startswith("__") else "python"


def _study_directory(wanted: Path | None, name: str) -> Path:
    """A directory that is not there yet, or empty. Raises RequestError, MachineError."""
    place = str(Path.cwd() if wanted is None else wanted.absolute())
    if writable(place) != place:
        raise RequestError(f"the path {writable(place)} is no valid UTF-8: choose another place with directory=")
    if wanted is not None:
        wanted = wanted.absolute()
        try:
            taken = wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir()))
        except OSError as error:
            raise RequestError(f"{wanted} cannot be looked at: {error.strerror}; choose another directory=") from error
        if taken:
            raise RequestError(f"{wanted} exists and is not empty; choose another directory=")
        return wanted
    stem = f"{name.replace(' ', '_').replace('/', '_')}_{strftime('%Y%m%d-%H%M%S', localtime())}"
    number = 1
    while True:
        made = Path.cwd() / (stem if number == 1 else f"{stem}-{number}")
        try:
            made.mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise MachineError(f"cannot make {made}: {error.strerror}. Choose another place with directory=") from error
        else:
            return made


def _await_end(own: Path, remove: bool) -> bool:
    """Whether nothing is left to be done: it lives on, or nothing of it is there."""
    from shutil import rmtree

    layout = Layout(own)
    deadline = monotonic() + _ENDS_WITHIN_S
    while layout.lock.exists() and holder(layout.lock) is not None:
        if monotonic() > deadline:
            return True
        sleep(_PAUSE_S)
    if remove:
        rmtree(own, ignore_errors=True)
    return remove


def _give_up(own: Path) -> None:
    """Nothing came of it; a pilot that is up all the same ends by itself when no program comes."""
    from shutil import rmtree

    from cantle.errors import CantleError
    from cantle.runtime.pilot.messages import Down
    from cantle.runtime.pilot.visiting import ask

    layout = Layout(own)
    if layout.lock.exists() and holder(layout.lock) is not None:
        try:
            ask(own, own.name, Down(now=True))
        except CantleError:
            return
        _await_end(own, remove=True)
    else:
        rmtree(own, ignore_errors=True)
