"""Runs in batch jobs that `cantle orchestrate` submits, on a real Slurm: in the queue, on nodes, and past the walltime."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until

STUDY = """\
description: {{name: orchestrated, description: in batch jobs}}
batch: {{type: slurm}}
study:
  - name: nap
    description: d
    run: {{cmd: "echo start $(N) $(uname -n) >> {place}/ran; {does}; echo end $(N) $(uname -n) >> {place}/ran"}}
global.parameters:
  N: {{values: {values}, label: N.%%}}
"""
UNTIL_GO = "until [ -e go ]; do sleep 0.1; done"
"""What tasks do that go on when `Place.go` says so. Their directory is the study's."""


class Place:
    """A directory that all nodes see, in which one stands."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster = cluster
        self.path = path

    def study(self, does: str, tasks: int) -> str:
        """The file of a study of so many tasks that do this."""
        text = STUDY.format(place=self.path, does=f"cd {self.path}; {does}", values=list(range(1, tasks + 1)))
        (self.path / "study.yaml").write_text(text)
        return "study.yaml"

    def go(self) -> None:
        (self.path / "go").touch()

    def cantle(self, *words: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        done = self.cluster.run([sys.executable, "-m", "cantle", *words], cwd=self.path, timeout=timeout, check=False)
        print(done.stdout, done.stderr)
        return done

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cantle", *words], cwd=self.path, env=self.cluster.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def ran(self) -> list[list[str]]:
        """What the tasks wrote: `start N HOST`, `end N HOST`."""
        path = self.path / "ran"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def begun(self) -> Counter[str]:
        return Counter(words[1] for words in self.ran() if words[0] == "start")

    def ends(self) -> Counter[str]:
        return Counter(words[1] for words in self.ran() if words[0] == "end")

    def queue(self) -> str:
        """The jobs of ours that are not over."""
        return self.cluster.slurm(["squeue", "--noheader", "--name=orchestrated,sleep,sh"]).stdout

    def empty_queue(self) -> None:
        assert wait_until(lambda: not self.queue().strip(), every=0.2)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_study_runs_on_all_nodes_of_a_job_and_ends_as_it_would_here(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    all_there = "until [ $(grep start ran | cut -d ' ' -f 3 | sort -u | wc -l) -eq 3 ]; do sleep 0.1; done"
    done = place.cantle("orchestrate", place.study(all_there, 24), "-o", "out", "--nodes", "3", "--time", "10")
    assert done.returncode == 0
    assert "asks for 3 nodes for 10 min" in done.stdout
    assert "all 24 tasks done" in done.stdout
    assert place.ends() == {str(n): 1 for n in range(1, 25)}
    assert len({words[2] for words in place.ran() if words[0] == "end"}) == 3
    place.empty_queue()


def test_a_run_is_canceled_while_its_job_waits_and_while_it_runs(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    study = place.study("sleep 600", 4)
    assert place.cantle("orchestrate", study, "-o", "waits", "--args", "--begin=now+600", "--detach").returncode == 0
    assert "queued: batch job" in place.cantle("status", "waits").stdout
    assert "pending (BeginTime)" in place.cantle("status", "waits").stdout
    assert place.cantle("cancel", "waits", "-y").returncode == 0
    assert place.cantle("wait", "waits").returncode == 3
    place.empty_queue()
    assert place.cantle("orchestrate", study, "-o", "runs", "--time", "15", "--detach", "--until-done").returncode == 0
    assert wait_until(place.ran)
    assert place.cantle("cancel", "runs", "-y").returncode == 0
    assert place.cantle("wait", "runs").returncode == 3
    place.empty_queue()
    assert place.ends() == {}


def test_one_lets_go_of_a_run_and_follows_it_again(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    following = place.begin("orchestrate", place.study(UNTIL_GO, 2), "-o", "out", "--time", "15")
    assert wait_until(place.ran)
    following.send_signal(signal.SIGINT)
    said, _ = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 130
    assert "the study goes on in batch job" in said
    place.go()
    assert place.cantle("orchestrate", "--attach", "out").returncode == 0
    assert place.ends() == {"1": 1, "2": 1}


def test_a_study_longer_than_the_walltime_is_done_in_several_jobs(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    words = ("--nodes", "1", "--time", "1", "--until-done", "--conductor", "--cores 2 --drain 40s")
    done = place.cantle("orchestrate", place.study("sleep 5", 10), "-o", "out", *words, timeout=800)
    assert done.returncode == 0
    assert place.ends() == {str(n): 1 for n in range(1, 11)}  # 25 s of work in jobs of a minute, of which they use 20 s
    assert len(list((shared_path / "out" / "logs").glob("job-*.out"))) >= 2
    place.empty_queue()


def test_a_job_whose_conductor_is_killed_is_followed_by_another_one(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    following = place.begin("orchestrate", place.study(UNTIL_GO, 4), "-o", "out", "--time", "15", "--until-done")
    assert wait_until(place.ran)
    inside = f"orchestrate --inside 1 {shared_path}/out"
    alike = {
        pid for node in cluster.nodes for pid, words in cluster.guests(node).items() if words.rstrip().endswith(inside)
    }
    (conductor,) = [pid for pid in alike if _parent(pid) not in alike]  # its runner is its child, and called the same
    os.kill(conductor, signal.SIGKILL)
    assert wait_until(lambda: 2 in place.begun().values())  # the next job's tasks run, so those of this one are gone
    place.go()
    said, _ = following.communicate(timeout=2 * PATIENCE_S)
    assert following.returncode == 0, said
    assert place.ends() == {str(n): 1 for n in range(1, 5)}
    place.empty_queue()


def test_a_job_whose_node_dies_is_followed_by_another_one_elsewhere(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    following = place.begin("orchestrate", place.study(UNTIL_GO, 4), "-o", "out", "--time", "15", "--until-done")
    assert wait_until(place.ran)
    node = cluster.slurm(
        ["squeue", "--noheader", "--states=RUNNING", "--name=orchestrated", "--format=%N"]
    ).stdout.strip()
    cluster.kill(node, "power", tell=True)
    place.go()
    said, _ = following.communicate(timeout=2 * PATIENCE_S)
    assert following.returncode == 0, said
    assert place.ends() == {str(n): 1 for n in range(1, 5)}
    assert node not in {words[2] for words in place.ran() if words[0] == "end"}
    place.empty_queue()


def test_a_job_that_somebody_cancels_takes_the_run_with_it(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    following = place.begin("orchestrate", place.study("sleep 600", 2), "-o", "out", "--time", "15", "--until-done")
    assert wait_until(place.ran)
    running = cluster.slurm(["squeue", "--noheader", "--states=RUNNING", "--name=orchestrated", "--format=%i"]).stdout
    cluster.slurm(["scancel", *running.split()])
    said, _ = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 3, said
    place.empty_queue()
    assert place.ends() == {}
    assert "somebody canceled job" in (shared_path / "out" / "logs" / "job-2.out").read_text()


def test_any_command_has_a_job_of_its_own(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    done = place.cantle("orchestrate", "--nodes", "2", "-o", "out", "--", "sh", "-c", "srun hostname; exit 7")
    assert done.returncode == 7
    assert len(set(done.stdout.split()) & set(cluster.nodes)) == 2
    assert place.cantle("orchestrate", "-o", "long", "--detach", "--", "sleep", "600").returncode == 0
    assert wait_until(lambda: (shared_path / "long" / ".cantle" / "batch" / "1.began.json").exists())
    assert place.cantle("cancel", "long", "-y").returncode == 0
    place.empty_queue()


def test_what_slurm_refuses_is_told_in_its_words(cluster: Cluster, shared_path: Path) -> None:
    place = Place(cluster, shared_path)
    done = place.cantle("orchestrate", place.study("true", 1), "-o", "out", "--queue", "nosuch")
    assert done.returncode == 1
    assert "invalid partition specified: nosuch" in done.stderr
    assert not (shared_path / "out").exists()
