"""What is written down about the batch jobs of a run, and where?

In the run's `.cantle/batch/` lies what was asked for (`asked.json`), and for each job a few small files that begin with its
number: `1.json` (what the batch system calls it), `1.began.json` (where its conductor stands) and `1.ended.json` (with which
status). Each is written beside and renamed, by whoever learns it; none is changed afterwards. Whoever submits a job makes its
`.json` first, empty and exclusively, so that no job is submitted twice. `canceled` says that nothing more shall run.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import time
from typing import Any, TypeVar

import msgspec

from cantle.allocations.submission.wanted import JobWanted
from cantle.errors import MachineError, RequestError
from cantle.store.failures import in_words
from cantle.store.layout import Layout

_Any = TypeVar("_Any")
STALE_S = 120.0
"""Who began to submit a job and has not written down its number by then has died over it."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was asked for. `job` is the first job, and the pattern for those that follow it.

    `system` names the batch system. `command` is what the job runs, empty for a study: then its conductor, with the further
    words `conductor`. At most `most_jobs` follow each other until all is done; 1: there is but the one.
    """

    system: str
    job: JobWanted
    command: tuple[str, ...] = ()
    conductor: tuple[str, ...] = ()
    most_jobs: int = 1
    python: str = ""


class Submitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that was handed in. `ident` is what the batch system calls it, "" as long as it is being handed in.

    `retry`: what failed before gets a new chance in it. `chain` is the number of the first of the jobs that follow each other
    for the same wish. `resumed` counts how often the run had been resumed before.
    """

    number: int
    ident: str = ""
    time: float = 0.0
    host: str = ""
    retry: bool = False
    chain: int = 1
    resumed: int = 0


class Began(msgspec.Struct, frozen=True):
    """The job runs. `done` counts the tasks that were done before."""

    time: float
    host: str
    pid: int
    done: int = 0


class Ended(msgspec.Struct, frozen=True):
    """The job's work ended with this exit status. `complete`: nothing is left that a further job could do.

    `idle`: why it had nothing to do, which holds for the jobs that would follow as well; "" when it had something.
    """

    time: float
    status: int
    complete: bool = True
    idle: str = ""


class Jobs:
    """The batch jobs of a run."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.folder = layout.batch

    def exist(self) -> bool:
        """Whether the run was ever given to a batch system."""
        return (self.folder / "asked.json").exists()

    def require(self) -> Jobs:
        """These, if there are any. Raises RequestError otherwise."""
        if not self.exist():
            raise RequestError(
                f"nothing in {self.layout.directory} was given to a batch system: `cantle orchestrate` prints the directory"
            )
        return self

    def ask(self, asked: Asked) -> None:
        """Write down what is asked for, in place of what was asked before."""
        self._write("asked", asked)

    def asked(self) -> Asked:
        """What was asked for. Raises MachineError when that cannot be read."""
        found = self._read("asked", Asked)
        if found is None:
            raise MachineError(f"{self.folder / 'asked.json'} cannot be read")
        return found

    def numbers(self) -> list[int]:
        """The numbers of all jobs, oldest first."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def job(self, number: int) -> Submitted:
        """This job; without a name while it is being handed in."""
        return self._read(str(number), Submitted) or Submitted(number)

    def last(self) -> Submitted | None:
        """The job that was handed in last."""
        numbers = self.numbers()
        return self.job(numbers[-1]) if numbers else None

    def claim(self, number: int) -> bool:
        """Take the number for a job that is handed in now; False when somebody has it. Raises MachineError."""
        path = self.folder / f"{number}.json"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        except OSError as error:
            raise MachineError(f"cannot write {path}: {in_words(error)}") from error
        return True

    def give_back(self, number: int) -> None:
        """The job of that number was not taken."""
        (self.folder / f"{number}.json").unlink(missing_ok=True)

    def stale(self, number: int) -> bool:
        """Whether somebody died over handing in the job of that number."""
        path = self.folder / f"{number}.json"
        try:
            stat = path.stat()
        except OSError:
            return False
        return not stat.st_size and time() - stat.st_mtime > STALE_S

    def submitted(self, job: Submitted) -> None:
        """The batch system took the job."""
        self._write(str(job.number), job)

    def began(self, number: int) -> Began | None:
        """Where the job runs or ran, None when it has not begun."""
        return self._read(f"{number}.began", Began)

    def begins(self, number: int, began: Began) -> None:
        """Write down that the job runs; said by the job itself. One that is run again has not ended."""
        (self.folder / f"{number}.ended.json").unlink(missing_ok=True)
        self._write(f"{number}.began", began)

    def ended(self, number: int) -> Ended | None:
        """How the job's work ended; None when it has not, or when the job was killed."""
        return self._read(f"{number}.ended", Ended)

    def ends(self, number: int, ended: Ended) -> None:
        """Write down how the job's work ended."""
        self._write(f"{number}.ended", ended)

    @property
    def canceled(self) -> bool:
        """Whether somebody wants nothing more to run."""
        return (self.folder / "canceled").exists()

    @canceled.setter
    def canceled(self, wish: bool) -> None:
        path = self.folder / "canceled"
        if wish:
            path.touch(mode=0o600)
        else:
            path.unlink(missing_ok=True)

    def script(self, number: int) -> Path:
        """The script of the job."""
        return self.folder / f"{number}.sh"

    def output(self, number: int) -> Path:
        """What the job prints."""
        return self.layout.logs / f"job-{number}.out"

    def _write(self, name: str, content: Any) -> None:
        path = self.folder / f"{name}.json"
        beside = self.folder / f".{name}.{os.uname().nodename}.{os.getpid()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
            beside.replace(path)
        except OSError as error:
            raise MachineError(f"cannot write {path}: {in_words(error)}") from error

    def _read(self, name: str, kind: type[_Any]) -> _Any | None:
        try:
            return msgspec.json.decode((self.folder / f"{name}.json").read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
