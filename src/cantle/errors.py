"""What can go wrong, by whose fault it is.

CantleError                     all that a caller may want to catch; `exit_code` is what the command line ends with
├── UserError                   something in what was asked: the message says what, where, and what would help
│   ├── StudyError              a study file is wrong; carries every problem found, each with its place
│   ├── RequestError            a request cannot be met: a wrong option, a task that does not exist
│   └── PluginError             a reader, engine, allocation or policy of somebody else's misbehaved; it is named
├── RemoteError                 a Python call failed on its node, and its own exception could not be brought here
│   ├── DependencyError         a Python call was not begun, as one that it needs failed
│   └── WalltimeError           a Python call took longer than it may
├── MachineError                the machine under us failed: disk full, read-only directory, no process could start
│   └── JournalError            the journal cannot be written or read
├── LockedError                 another conductor is at work on this directory
└── CantleBug                   an invariant of ours is broken; please report it, with the journal
"""

from __future__ import annotations

from typing import NamedTuple


class CantleError(Exception):
    """Base of all; raise one of the classes below it."""

    exit_code = 1


class UserError(CantleError):
    """Something in what was asked cannot be done as asked."""


class Problem(NamedTuple):
    """One thing wrong in a file: where it stands, what it is, and how to mend it.

    `line` counts from 1, 0 where no line is known; `key` is the path of keys to the place, as in `study[2].run.procs`.
    """

    file: str
    line: int
    key: str
    what: str
    mend: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{place}: {self.key}: {self.what}" if self.key else f"{place}: {self.what}"
        return f"{text}\n    {self.mend}" if self.mend else text


class StudyError(UserError):
    """A study file is wrong. All of its problems are told at once."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class RequestError(UserError):
    """A request cannot be met: a wrong option, a task that does not exist."""


class PluginError(UserError):
    """Somebody else's reader, engine, allocation or policy misbehaved."""


class MachineError(CantleError):
    """The machine failed us: disk full, directory not writable, no process could be started."""


class JournalError(MachineError):
    """The journal cannot be written or read."""


class LockedError(CantleError):
    """Another conductor is at work on this directory."""


class CantleBug(CantleError):
    """An invariant of Cantle's is broken. Please report it, with the journal."""

    exit_code = 70


class RemoteError(CantleError):
    """A Python call failed on its node, in a way that cannot be told by the exception itself."""


class DependencyError(RemoteError):
    """A Python call was not begun, as one that it needs failed: the message names it."""


class WalltimeError(RemoteError, TimeoutError):
    """A Python call took longer than its walltime, and was ended."""


class PilotGoneError(MachineError):
    """The pilot went away in the middle of a conversation."""


MOST_SHOWN = 500
"""Of the text of somebody else's error so many characters are told."""


def said_by(problem: BaseException) -> str:
    """What is wrong, for people: ours are sentences, of others the type says half of it. Never raises.

    What others raise may have any text, or none, or raise once more when it is asked for it.
    """
    try:
        text = str(problem)
    except BaseException as fault:  # noqa: BLE001 - it is somebody else's code
        text = f"its text cannot be told: str() raised {type(fault).__name__}"
    text = writable(text)
    if isinstance(problem, CantleError):
        return text
    text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def writable(text: str) -> str:
    """The text as it can be written down: half characters (surrogates), which no file takes, are told by their codes."""
    return text.encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """The text with what a terminal would obey shown instead; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _code_of(c) for c in text)


def _code_of(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def one_line(text: str, most: int = MOST_SHOWN) -> str:
    """The text in one line of so many characters at most, which can be written down."""
    line = " ".join(writable(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def shown(thing: object, most: int = 200) -> str:
    """What somebody else's code gave us, on one line of so many characters at most; even its `repr` may be broken."""
    try:
        return one_line(repr(thing), most)
    except Exception:  # noqa: BLE001
        return one_line(f"an object of {type(thing).__name__}", most)
