"""What does a runner have to know before it can reach its conductor? It stands in one letter: a file, or lines on stdin.

Whoever can read the letter can join the run, so the file is its owner's alone, and never are its contents words of a command
or variables of an environment, where others could see them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from cantle.allocations.fleet.certificates import Identity
from cantle.errors import RequestError

FILE = "letter"
_MARK = "cantle-letter-1"
_NOBODY = 65534
"""To whom all files seem to belong where a network's file system cannot tell their owners."""


class Letter(msgspec.Struct, frozen=True):
    """`addresses` are `tls://host:port`, all of the same conductor: some may lead nowhere from where the runner is.

    `run` names the run; `probe` is a file in its directory, and `probe_text` what stands there, to see whether the runner's
    machine sees the same files. `silence_s` bounds how long conductor and runner take each other for alive without a word.
    """

    run: str
    addresses: tuple[str, ...]
    identity: Identity
    directory: str
    probe: str
    probe_text: str
    silence_s: float
    cantle: str
    python: str
    mark: str = _MARK


def encode(letter: Letter) -> bytes:
    """One line."""
    return msgspec.json.encode(letter) + b"\n"


def decode(data: bytes, where: str) -> Letter:
    """The letter in these bytes. Raises RequestError when they are none."""
    try:
        letter = msgspec.json.decode(data, type=Letter)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"{where} is no letter from a conductor: {error}") from None
    if letter.mark != _MARK:
        raise RequestError(f"{where} is a letter from another version of Cantle ({letter.mark}); this is {_MARK}")
    return letter


def write(path: Path, letter: Letter) -> None:
    """Write the file, whole and readable by its owner alone from its first byte on."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(encode(letter))
    beside.replace(path)


def read(path: Path) -> Letter:
    """The letter in this file. Raises RequestError when it cannot be read, is somebody else's, or others could have read it."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
    except OSError as error:
        raise RequestError(
            f"{path}: {error.strerror}. A run that takes runners writes this file when it begins, and removes it at its end."
        ) from None
    if status.st_uid not in (os.geteuid(), _NOBODY):
        raise RequestError(
            f"{path} belongs to user {status.st_uid}: whoever wrote it could run anything here as you. "
            "A runner serves runs of its own user"
        )
    letter = decode(data, str(path))
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise RequestError(
            f"{path} can be read by others: its key is worth nothing. Begin the run anew, or chmod 600 it."
        )
    return letter
