"""How is a pilot asked something from another host, by letters in the directory that both see?

A letter is one file in the folder of the pilot's door, which nobody else may enter: written beside and renamed, so that it is
there as a whole or not at all. The answer lies beside it. Both are sealed with the secret of the pilot's address, so that no
letter to an earlier pilot is heard. What the pilot takes, it removes first: a letter that could be withdrawn was not heard.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from cantle.errors import MachineError, PilotGoneError
from cantle.runtime.pilot.address import Address, door_folder
from cantle.runtime.pilot.messages import (
    NONCE_BYTES,
    Answer,
    Refused,
    Sealed,
    Written,
    is_proven,
    proof,
)
from cantle.store.failures import in_words, mend
from cantle.store.identity import Holder, same
from cantle.store.layout import Layout
from cantle.store.lock import holder
from cantle.store.noticing import Noticed

_ASKED, _ANSWERED = ".asked", ".answered"
_LOOK_S = 0.1
_IS_THERE_S = 1.0
KEPT_S = 120.0
"""So long an answer lies there, or is tried to be written, if nobody comes for it."""


class Letter:
    """One that was heard, to be answered now or later."""

    __slots__ = ("_box", "_nonce", "name")

    def __init__(self, box: Letterbox, name: str, nonce: bytes) -> None:
        self._box = box
        self._nonce = nonce
        self.name = name

    def answer(self, answer: Answer) -> None:
        """Let whoever wrote it know."""
        text = msgspec.msgpack.encode(answer)
        self._box.put(self.name, Sealed(self._nonce, text, proof(self._box.secret, b"answer", b"", self._nonce, text)))


class Letterbox:
    """The pilot's side. `heed` is called, in the loop's thread, with each question and the letter to be answered."""

    def __init__(self, layout: Layout, secret: bytes, heed: Callable[[Written, Letter], None]) -> None:
        self.secret = secret
        self._folder = door_folder(layout)
        self._heed = heed
        self._noticed = Noticed(self._folder)
        self._unsent: dict[str, tuple[float, bytes]] = {}
        self._answered: dict[Path, float] = {}

    def look(self) -> None:
        """Hear what has come, and put away what nobody comes for. Call it now and then."""
        if self._noticed.changed():
            for path in self._found():
                self._take(path)
        now = time.monotonic()
        for name, (since, sealed) in list(self._unsent.items()):
            if now - since > KEPT_S or self._written(name, sealed):
                del self._unsent[name]
        for path, since in list(self._answered.items()):
            if now - since > KEPT_S:
                del self._answered[path]
                path.unlink(missing_ok=True)

    def put(self, name: str, sealed: Sealed) -> None:
        """An answer. Where it cannot be written now, as the disk is full, it is tried again."""
        data = msgspec.msgpack.encode(sealed)
        if not self._written(name, data):
            self._unsent[name] = (time.monotonic(), data)

    def _found(self) -> list[Path]:
        try:
            # One whose name begins with a dot is being written (`_write`), and gets its name when all of it is there.
            return sorted(p for p in self._folder.iterdir() if p.suffix == _ASKED and not p.name.startswith("."))
        except OSError:
            return []

    def _take(self, path: Path) -> None:
        try:
            data = path.read_bytes()
            path.unlink()
        except OSError:  # withdrawn at this moment, or the file server is away
            self._noticed.forget()
            return
        try:
            sealed = msgspec.msgpack.decode(data, type=Sealed)
            if not is_proven(sealed, self.secret, b"letter", b""):
                return
            question = msgspec.msgpack.decode(sealed.text, type=Written)
        except (ValueError, RecursionError):
            return
        self._heed(question, Letter(self, path.stem, sealed.nonce))

    def _written(self, name: str, data: bytes) -> bool:
        path = self._folder / f"{name}{_ANSWERED}"
        try:
            _write(path, data)
        except OSError:
            return False
        self._answered[path] = time.monotonic()
        return True


def ask_by_letter(
    layout: Layout, name: str, there: Holder, address: Address, question: Written, timeout_s: float | None
) -> Answer:
    """What the pilot in that directory, held by `there` on another host, answers. `name` is what people call it.

    Raises MachineError when nothing can be written there, PilotGoneError when it went away or did not answer in time; that
    one says whether it may have heard.
    """
    text, nonce = msgspec.msgpack.encode(question), os.urandom(NONCE_BYTES)
    sealed = Sealed(nonce, text, proof(address.secret, b"letter", b"", nonce, text))
    folder = door_folder(layout)
    letter = folder / f"{time.time_ns():020d}-{os.uname().nodename}-{os.getpid()}{_ASKED}"
    try:
        _write(letter, msgspec.msgpack.encode(sealed))
    except OSError as error:
        raise MachineError(
            f"cannot leave a letter to the pilot {name} in {folder}: {in_words(error)}. {mend(error)}, and ask again."
        ) from error
    try:
        return _awaited(layout, name, there, letter, address.secret, nonce, timeout_s)
    finally:
        letter.unlink(missing_ok=True)


def _awaited(
    layout: Layout, name: str, there: Holder, letter: Path, secret: bytes, nonce: bytes, timeout_s: float | None
) -> Answer:
    begun = looked = time.monotonic()
    while True:
        time.sleep(_LOOK_S)
        if (answer := _fetched(letter.with_suffix(_ANSWERED), secret, nonce)) is not None:
            return answer
        now = time.monotonic()
        late = timeout_s is not None and now - begun > timeout_s
        if not late and now - looked < _IS_THERE_S:
            continue
        looked = now
        current = holder(layout.lock)
        gone = current is None or not same(current, there)
        if not late and not gone:
            continue
        unheard = _withdrawn(letter)
        if (answer := _fetched(letter.with_suffix(_ANSWERED), secret, nonce)) is not None:
            return answer
        reason = "it went away" if gone else f"it did not answer within {timeout_s:g} s"
        heard = "it has not heard it" if unheard else "it may have heard it"
        raise PilotGoneError(
            f"the pilot {name} on host {there.host} was asked, by a file in {letter.parent}, but {reason}; {heard}. Look with: "
            f"cantle jobs {name}"
        )


def _fetched(path: Path, secret: bytes, nonce: bytes) -> Answer | None:
    """The answer, if it is there; it is removed."""
    try:
        # A folder that is opened is asked for anew of a file server; that a file was missing, its client remembers.
        if path not in set(path.parent.iterdir()):
            return None
        sealed = msgspec.msgpack.decode(path.read_bytes(), type=Sealed)
        path.unlink(missing_ok=True)
        if sealed.nonce != nonce or not is_proven(sealed, secret, b"answer", b""):
            return None
        return msgspec.msgpack.decode(sealed.text, type=Answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Refused(
            f"the answer makes no sense here ({error}): use the version of Cantle that the pilot was begun with"
        )
    except OSError:
        return None


def _withdrawn(letter: Path) -> bool:
    """Whether it still lay there."""
    try:
        letter.unlink()
    except OSError:
        return False
    return True


def _write(path: Path, data: bytes) -> None:
    """The whole file, or none; for its owner's eyes. Raises OSError."""
    beside = path.with_name(f".{path.name}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        beside.rename(path)
    except OSError:
        try:
            beside.unlink(missing_ok=True)
        except OSError:
            pass
        raise
