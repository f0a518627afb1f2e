"""Where does a pilot live, and how does one reach it?

A pilot has a name and a directory: by default one of that name in the user's state directory. While it is up, the folder
`.cantle/door` there, which nobody else may enter, holds the socket, and a file with the address and the secret.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

import msgspec

from cantle.errors import MachineError, RequestError
from cantle.store.failures import in_words
from cantle.store.layout import DOOR, Layout

DEFAULT = "default"
LONGEST_SOCKET_PATH = 107
_SECRET_BYTES = 32


class Address(msgspec.Struct, frozen=True):
    """Where the door is: the path of a socket, or a port of the loopback interface.

    `letters` is the version of what may be said by letter, from other hosts; 0: nothing.
    """

    kind: Literal["unix", "tcp"]
    where: str
    secret: bytes
    host: str
    pid: int
    letters: int = 0


def pilots() -> Path:
    """The folder in which this user's pilots lie by name."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "cantle" / "pilots"


def directory_of(name: str) -> Path:
    """The directory of the pilot of that name, or the one that the name itself is the path of. It need not exist.

    Raises RequestError when it cannot be a name.
    """
    if "/" in name:
        return Path(name).resolve()
    if not name or name.startswith((".", "-")) or not name.isprintable():
        raise RequestError(f"{name!r} cannot be the name of a pilot: take letters, digits, - and _")
    return (pilots() / name).resolve()


def name_at(name: str, directory: Path) -> Path:
    """Let the name lead to a directory elsewhere: it, resolved.

    Raises RequestError when it leads to another pilot already, MachineError when it cannot be written down.
    """
    wanted = directory.resolve()
    link = pilots() / name
    if directory_of(name) == wanted:
        return wanted
    try:
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise RequestError(f"the pilot {name} lies in {link} already; choose another name, or leave out --dir")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(wanted)
    except OSError as error:
        raise MachineError(f"cannot write {link}: {in_words(error)}. Mend that, or set XDG_STATE_HOME.") from error
    return wanted


def door_folder(layout: Layout) -> Path:
    """What nobody else may enter."""
    return layout.own / DOOR


def is_pilot(layout: Layout) -> bool:
    """Whether this is the directory of a pilot, not of a run."""
    return door_folder(layout).is_dir()


def new_secret() -> bytes:
    """A secret that nobody guesses."""
    return os.urandom(_SECRET_BYTES)


def make_folder(layout: Layout) -> Path:
    """The folder for the door, empty and closed to others. Raises MachineError when that cannot be had."""
    folder = door_folder(layout)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        for left in folder.iterdir():  # of a pilot that was killed
            left.unlink()
        found = folder.lstat()
    except OSError as error:
        raise MachineError(f"cannot make {folder}: {in_words(error)}. Choose another place with --dir.") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise MachineError(f"{folder} cannot be closed to others on this file system. Choose another place with --dir.")
    return folder


def publish(layout: Layout, address: Address) -> None:
    """Let the owner, and nobody else, know where the door is. Raises MachineError."""
    path = door_folder(layout) / "address"
    beside = path.with_name("address.new")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, msgspec.json.encode(address))
            mode = os.fstat(fd).st_mode
        finally:
            os.close(fd)
        beside.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {in_words(error)}. Choose another place with --dir.") from error
    if mode & 0o077:
        path.unlink()
        raise MachineError(f"{path} cannot be kept from others on this file system. Choose another place with --dir.")


def published(layout: Layout) -> Address | None:
    """What was published last; whether anybody answers there is another question. None when nothing can be read."""
    try:
        return msgspec.json.decode((door_folder(layout) / "address").read_bytes(), type=Address)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
