"""Which file is where in a run's directory?

At the top lies what people look at: the tasks' workspaces, `status.csv`, `logs/`, a copy of the study's file, as Maestro
has it. Everything of Cantle's own lies in `.cantle/`.
"""

from __future__ import annotations

from pathlib import Path

from cantle.errors import MachineError, RequestError

from .failures import in_words

OWN = ".cantle"
SUBMISSION = "submission"
"""What a study brings along for a pilot: there as long as it belongs to one."""
DOOR = "door"
"""The folder of a pilot's door."""


class Layout:
    """The paths of one run's directory, all absolute. Making a Layout touches nothing on disk."""

    __slots__ = (
        "directory",
        "fleet",
        "journal",
        "lock",
        "logs",
        "nodes",
        "own",
        "requests",
        "reserve",
        "status",
        "study",
    )

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory).absolute()
        self.status = self.directory / "status.csv"
        self.logs = self.directory / "logs"
        self.own = self.directory / OWN
        self.journal = self.own / "journal.jsonl"
        self.reserve = reserve_beside(self.journal)
        self.lock = self.own / "conductor.lock"
        self.requests = self.own / "requests"
        self.study = self.own / "study"
        self.nodes = self.own / "nodes"
        self.fleet = self.own / "fleet"

    @property
    def elastic(self) -> Path:
        """What was asked of those who bring nodes, and may have to be taken back."""
        return self.own / "elastic"

    @property
    def arguments(self) -> Path:
        """Large arguments of calls, put there by the program that makes them."""
        return self.own / "arguments"

    @property
    def maestro_cancel(self) -> Path:
        """What `maestro cancel DIR` touches."""
        return self.directory / ".cancel.lock"

    @property
    def maestro_update(self) -> Path:
        """What `maestro update DIR` writes."""
        return self.directory / ".study.update.lock"

    @property
    def batch(self) -> Path:
        """What is known of the batch jobs that the run was given to; there when it was."""
        return self.own / "batch"

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.journal.exists()

    def is_gone(self) -> bool:
        """Whether what lay here while a run was at work was removed, or has another name now; not if that cannot be told."""
        for path in (self.journal, self.lock):
            try:
                path.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return False
            return False
        return True

    @property
    def shared(self) -> bool:
        """Whether this is the directory of a pilot, or of a study that belongs to one."""
        return (self.own / DOOR).exists() or (self.own / SUBMISSION).exists()

    def require(self) -> Layout:
        """This layout, if a run was begun here. Raises RequestError otherwise."""
        if not self.exists():
            raise RequestError(
                f"{self.directory} is not the directory of a Cantle run: it has no {OWN}/{self.journal.name}. "
                "Name the directory that `cantle run` printed when it began."
            )
        return self

    def create(self) -> Layout:
        """Make the directories that a new run needs. Raises MachineError when that cannot be done."""
        try:
            self.own.mkdir(parents=True, exist_ok=True)
            for folder in (self.study, self.nodes):
                folder.mkdir(exist_ok=True)
            self.requests.mkdir(mode=0o700, exist_ok=True)
            self.requests.chmod(0o700)  # who can write there can cancel the run, whatever the umask says of other files
        except OSError as error:
            raise MachineError(
                f"cannot make the run's directory {error.filename or self.own}: {in_words(error)}. "
                "Choose another place with -o, or mend this one."
            ) from error
        return self


def reserve_beside(journal: Path) -> Path:
    """The file whose space is given up for a journal's last records when the disk is full."""
    return journal.with_suffix(".reserve")


def run_directory(own_file: Path) -> Path:
    """The run's directory that a file of Cantle's own belongs to: what people type after `cantle resume`."""
    folder = own_file.absolute().parent
    return folder.parent if folder.name == OWN else folder
