"""What do other processes want from the conductor of a run?

Whoever wants something drops a file into the run's `.cantle/requests/` (`ask`): one record as JSON, written beside and renamed,
so that it is there as a whole or not at all. The conductor looks there now and then (`Requests.poll`), and heeds what its own
user and root have left: the directory around may be open to a group. It also heeds what `maestro cancel` and `maestro update`
leave in the run's directory, where whoever may write may ask, as with Maestro.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TypeAlias

import msgspec

from cantle.errors import MachineError
from cantle.model.records import (
    CancelAsked,
    ElementsAsked,
    LimitsChanged,
    NodeDrainAsked,
    NodeResumeAsked,
    NodesWished,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionResizeAsked,
    StopAsked,
)
from cantle.model.study import Limits

from .failures import in_words, mend
from .layout import Layout
from .noticing import Noticed

Wish: TypeAlias = (
    CancelAsked
    | LimitsChanged
    | StopAsked
    | NodeDrainAsked
    | NodeResumeAsked
    | NodesWished
    | PartitionAsked
    | PartitionResizeAsked
    | PartitionDrainAsked
    | PartitionCancelAsked
    | ElementsAsked
)
"""What may be asked from outside. No other record is taken from there: nobody may claim that a task ended."""


def ask(directory: Path | str, wish: Wish) -> None:
    """Ask something of the conductor that is at work on a run's directory.

    Raises RequestError when no run was begun there, MachineError when nothing can be written there. It is not known here
    whether a conductor lives: `lock.holder` tells.
    """
    folder = Layout(directory).require().requests
    name = f"{time.time_ns():020d}-{os.uname().nodename}-{os.getpid()}.json"
    beside = folder / f".{name}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(wish) + b"\n")
        beside.rename(folder / name)
    except OSError as error:
        try:
            beside.unlink(missing_ok=True)
        except OSError:
            pass
        what = f"{mend(error)}, and ask again."
        if isinstance(error, PermissionError) and (owner := _owner_of(folder)) not in (None, os.geteuid()):
            what = f"The run is that of {_user(owner)}, who alone may ask something of it."
        raise MachineError(f"cannot leave a request in {folder}: {in_words(error)}. {what}") from error


def _owner_of(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _user(uid: int | None) -> str:
    """What people call the user."""
    import pwd

    try:
        return pwd.getpwuid(uid or 0).pw_name
    except KeyError:
        return f"user {uid}"


class Requests:
    """The conductor's end. For the holder of the lock: what it reads, it removes.

    `problems` gathers sentences about files that could not be understood or are somebody else's (they are moved aside as
    `*.bad`), or could not be removed; whoever tells them to the user empties the list.
    """

    def __init__(self, directory: Path | str) -> None:
        layout = Layout(directory)
        self.problems: list[str] = []
        self.woken = False
        """Somebody heard that there is something: for whoever decides when to poll."""
        self._folder = layout.requests
        self._cancel = layout.maestro_cancel
        self._update = layout.maestro_update
        self._noticed = Noticed(layout.requests)
        self._stuck: set[tuple[str, int]] = set()

    def poll(self, now: float | None = None, limits: Limits | None = None) -> list[Wish]:
        """What was asked since the last call, oldest first; costs a few microseconds when there is nothing.

        `now` is the time to stamp on the wishes (default: the clock's): to the run they happen when they are heard.
        `limits` are those in force: `maestro update` names only what changes.
        """
        taken = (self._take(path) for path in self._files()) if self._noticed.changed() else ()
        wishes: list[Wish] = [wish for wish in taken if wish is not None]
        if self._cancel.exists() and self._remove(self._cancel):
            wishes.append(CancelAsked(0.0, by="maestro cancel"))
        if self._update.exists():
            asked = [wish.limits for wish in wishes if isinstance(wish, LimitsChanged) and wish.study == 0]
            changed = self._take_update(asked[-1] if asked else limits or Limits())
            wishes += [changed] if changed else []
        stamp = time.time() if now is None else now
        return [msgspec.structs.replace(wish, time=stamp) for wish in wishes]

    def discard(self) -> int:
        """Forget what was asked before: it was asked of a conductor that has gone. Returns how many wishes that were."""
        self._noticed.forget()
        return len(self.poll())

    def _files(self) -> list[Path]:
        try:
            return sorted(path for path in self._folder.iterdir() if path.suffix == ".json" and path.name[0] != ".")
        except OSError:
            return []

    def _take(self, path: Path) -> Wish | None:
        try:
            # Not through a link, which anybody may have laid, and without waiting for the other end of a pipe.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                if owner not in (0, os.geteuid()):
                    self._set_aside(
                        path, f"{path} was left by {_user(owner)}, and this run is that of {_user(os.geteuid())}"
                    )
                    return None
                wish = msgspec.json.decode(file.read(), type=Wish)
        except OSError as error:
            self._complain(path, f"cannot read the request {path}: {in_words(error)}. It is ignored.")
            return None
        except (msgspec.MsgspecError, RecursionError) as error:
            self._set_aside(path, f"{path} is not a request that Cantle knows: {error}")
            return None
        return wish if self._remove(path) else None

    def _take_update(self, limits: Limits) -> LimitsChanged | None:
        """What `maestro update` left: `{rlimit: 3, throttle: null, sleep: null}`.

        Unlike Maestro we heed a 0, which its prompt says to mean "no bound". Its `sleep` has no meaning here.
        """
        import yaml

        try:
            told = yaml.safe_load(self._update.read_bytes())
            if told is None:  # opened by its writer, and not yet written
                return None
            new = {key: told[key] for key in ("throttle", "rlimit") if told.get(key) is not None}
            changed = msgspec.structs.replace(limits, **new)
            msgspec.convert(msgspec.to_builtins(changed), Limits)
            if min(changed.throttle, changed.rlimit) < 0:
                raise ValueError("throttle and rlimit must not be negative")
        except OSError as error:
            self._complain(self._update, f"cannot read {self._update}: {in_words(error)}. It is ignored.")
            return None
        except (
            yaml.YAMLError,
            msgspec.ValidationError,
            AttributeError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            self._set_aside(self._update, f"{self._update} is not a request that Cantle knows: {error}")
            return None
        return LimitsChanged(0.0, changed) if self._remove(self._update) and changed != limits else None

    def _remove(self, path: Path) -> bool:
        """Whether it is gone now: what cannot be removed would be heard again and again, so it is not heard at all."""
        try:
            path.unlink()
        except OSError as error:
            self._complain(path, f"cannot remove the request {path}: {in_words(error)}. It is ignored.")
            return False
        return True

    def _set_aside(self, path: Path, why: str) -> None:
        bad = path.with_name(f"{path.name}.bad")
        try:
            path.replace(bad)
        except OSError as error:
            self._complain(path, f"{why}. It is ignored, and cannot be moved aside: {in_words(error)}.")
        else:
            self.problems.append(f"{why}. It is ignored, and now lies in {bad.name}.")

    def _complain(self, path: Path, sentence: str) -> None:
        """Once about each file, however often it is looked at."""
        try:
            key = (str(path), path.lstat().st_ino)
        except OSError:
            return
        if key not in self._stuck:
            self._stuck.add(key)
            self.problems.append(sentence)
