"""A run over several machines to which something happens: what was on each of them, what was lost, and what is left."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cluster import Cluster
from cluster.identity import PATIENCE_S

from cantle.model.records import AnyRecord, Launch, NodeLost, NodesJoined, TaskEnded
from cantle.store.journal import read
from cantle.store.layout import Layout

CANTLE = [sys.executable, "-m", "cantle"]

# Says that it runs and where, waits until it may go on, and says that it is done. Appending a line is one write.
# While it waits, the time of a file tells when it was last alive.
WORK = """\
echo "begin {task} $CANTLE_ATTEMPT $(hostname)" >>{place}/ledger
until [ -e {place}/go ]; do : >{place}/alive.{task}.$CANTLE_ATTEMPT; sleep 0.1; done
sleep {pause}
{then}
echo "end {task} $CANTLE_ATTEMPT $(hostname)" >>{place}/ledger
"""


class Ordeal:
    """A run of `tasks` tasks, of which none ends before `go`, on nodes of the cluster by ssh. Its directory is shared.

    `places` are the words after -j. `pause`: each task takes so many more seconds. `then`: what it does last.
    """

    job = ""
    """Slurm's number of the job in which it runs, if it does."""

    def __init__(
        self,
        cluster: Cluster,
        place: Path,
        places: Iterable[str],
        tasks: int,
        *options: str,
        pause: float = 0,
        then: str = "",
    ) -> None:
        self.cluster = cluster
        self.conductor: subprocess.Popen[bytes] | None = None
        self.place = place
        self.tasks = tasks
        self.layout = Layout(place / "out")
        self.told = place / "told"
        work = WORK.replace("{task}", "$1").replace("{place}", str(place)).replace("{pause}", str(pause))
        (place / "work.sh").write_text(work.replace("{then}", then))
        values = ["--range", f"0-{tasks - 1}"]
        self._begin("map", f"sh {place}/work.sh {{}}", *values, "-o", "out", "-j", *places, *options)

    def _begin(self, *words: str) -> None:
        """Run Cantle with these words, on this machine."""
        with self.told.open("a") as told:
            self.conductor = subprocess.Popen(
                [*CANTLE, *words],
                cwd=self.place,
                env=self.cluster.env,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )

    def resume(self, *words: str) -> None:
        """Go on with it."""
        self._begin("resume", "out", *words)

    # What is known of it

    def records(self) -> list[AnyRecord]:
        return list(read(self.layout.journal)) if self.layout.journal.exists() else []

    def nodes(self) -> dict[int, str]:
        """Names by number."""
        names: dict[int, str] = {}
        for record in self.records():
            if isinstance(record, NodesJoined):
                names.update({len(names) + n: node.name for n, node in enumerate(record.nodes)})
        return names

    def lost_nodes(self) -> list[str]:
        names = self.nodes()
        return [names[record.node] for record in self.records() if isinstance(record, NodeLost)]

    def launched_on(self, node: str) -> set[tuple[int, int]]:
        """Attempts that were sent there: task and attempt."""
        names = self.nodes()
        launches = [record for record in self.records() if isinstance(record, Launch)]
        return {(each.task, each.attempt) for each in launches if names[each.on[0].node] == node}

    def ended(self, *outcomes: str) -> set[tuple[int, int]]:
        """Attempts that ended so; of every outcome when none is named."""
        ends = [record for record in self.records() if isinstance(record, TaskEnded)]
        return {(end.task, end.attempt) for end in ends if not outcomes or end.outcome in outcomes}

    def begun(self, node: str = "") -> set[tuple[int, int]]:
        """Attempts that have said that they run: by the ledger, so by their own word."""
        return self._said("begin", node)

    def finished(self, node: str = "") -> set[tuple[int, int]]:
        """Attempts that have said that they are done."""
        return self._said("end", node)

    def _said(self, what: str, node: str) -> set[tuple[int, int]]:
        ledger = self.place / "ledger"
        lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
        return {(int(task), int(attempt)) for word, task, attempt, host in lines if word == what and node in ("", host)}

    def last_alive(self, attempts: Iterable[tuple[int, int]]) -> float:
        """Until when at least one of these attempts waited: seconds since the epoch, a tenth of a second too early at most."""
        return max((self.place / f"alive.{task}.{attempt}").stat().st_mtime for task, attempt in attempts)

    def left_on(self, node: str) -> list[str]:
        """Processes of the run there, as the head sees them: no network is needed for that."""
        return [line for line in self.cluster.guests(node).values() if "cantle" in line or str(self.place) in line]

    # Waiting

    def until(self, true: Callable[[], object], seconds: float = PATIENCE_S, seen: Callable[[], object] = str) -> None:
        """Wait until it is true; `seen` tells what there is instead."""
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                last = "\n".join(map(str, self.records()[-12:]))
                raise AssertionError(f"not true in {seconds} s {seen()}\n{self.told.read_text()}\n{last}")
            time.sleep(0.05)

    def until_begun(self, n: int) -> None:
        """Until so many attempts run."""
        self.until(lambda: len(self.begun()) >= n)

    def go(self) -> None:
        """All tasks may end."""
        (self.place / "go").touch()

    def ends(self, code: int = 0, seconds: float = PATIENCE_S) -> str:
        """Wait for the end. What it told."""
        assert self.conductor is not None
        try:
            status = self.conductor.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end in {seconds} s\n{self.told.read_text()}") from None
        assert status == code, self.told.read_text()
        return self.told.read_text()

    # What has to hold

    def nothing_was_lost_but(self, lost: set[tuple[int, int]]) -> None:
        """Every task was done once; the attempts that were not done are these, and no end of theirs was taken for one."""
        done = self.ended("done")
        assert sorted(task for task, _ in done) == list(range(self.tasks)), self.told.read_text()
        others = [record for record in self.records() if isinstance(record, TaskEnded) and record.outcome != "done"]
        assert others == []
        launched = {(each.task, each.attempt) for each in self.records() if isinstance(each, Launch)}
        assert launched - done == lost

    def nothing_is_left(self) -> None:
        """No process of the run is left on any node that runs, and none here."""
        for node in self.cluster.others(self.job):
            self.until(lambda node=node: not self.left_on(node), seen=lambda node=node: self.left_on(node))
        self.until(lambda: not self.left_here(), seen=self.left_here)

    def left_here(self) -> dict[int, str]:
        """Processes of the run on this machine, and their command lines."""
        own = os.fsencode(self.place)
        found = {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
                    continue
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if line and (own in line or os.readlink(f"/proc/{pid}/cwd") == str(self.place)):
                    found[pid] = line.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return found

    def close(self) -> None:
        """Whatever happened: it ends."""
        self.go()
        if self.conductor is not None:
            self.conductor.kill()
            self.conductor.wait()


class JobOrdeal(Ordeal):
    """The same in a job of Slurm's, on these nodes, of which the first conducts; `sbatch` are further options of it.

    Two cores of each node serve.
    """

    def __init__(
        self, cluster: Cluster, place: Path, nodes: Iterable[str], tasks: int, *options: str, sbatch: Iterable[str] = ()
    ) -> None:
        self._sbatch = ["--parsable", f"--nodelist={','.join(nodes)}", "--ntasks-per-node=2", "--no-kill", *sbatch]
        super().__init__(cluster, place, ("2", "*:2"), tasks, *options)

    def _begin(self, *words: str) -> None:
        """Run Cantle with these words, in a job.

        Without a shell around it, which would die of the job's first signal, and Slurm kill at once all that it leaves.
        """
        if self.job:  # it is over, and what goes on does so here
            super()._begin(*words)
            return
        script = f"#!/bin/bash\nexec {shlex.join([*CANTLE, *words])}\n"
        where = [f"--chdir={self.place}", f"--output={self.told}", "--open-mode=append"]
        self.job = self.cluster.slurm(["sbatch", *self._sbatch, *where], text=script).stdout.strip()

    def over(self) -> bool:
        """Whether Slurm has nothing more to do with it."""
        return self.cluster.job_state(self.job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")

    def ends(self, code: int = 0, seconds: float = PATIENCE_S) -> str:
        if self.conductor is not None:
            return super().ends(code, seconds)
        self.until(self.over, seconds)
        told = self.cluster.slurm(["scontrol", "show", "job", self.job]).stdout
        assert f" ExitCode={code}:0" in told, told + self.told.read_text()
        return self.told.read_text()

    def close(self) -> None:
        super().close()
        self.cluster.slurm(["scancel", self.job], check=False)


@contextmanager
def ordeal(
    cluster: Cluster, place: Path, places: Iterable[str], tasks: int, *options: str, pause: float = 0, then: str = ""
) -> Iterator[Ordeal]:
    """A run by ssh that ends with the test."""
    with closing(Ordeal(cluster, place, places, tasks, *options, pause=pause, then=then)) as run:
        yield run
