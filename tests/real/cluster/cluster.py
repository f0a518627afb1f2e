"""The cluster as its users see it: up, down, run something somewhere, break something, mend it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from . import access
from .identity import PATIENCE_S, wait_until
from .nodes import Node, ip, ip_maybe, quiet
from .packages import missing
from .settings import Settings, index
from .slurm import Slurm

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PLACES = ("etc", "log", "nodes", "slurm", "munge", "dev", "pid", "bin", "disk", "shared")


class ClusterError(Exception):
    """The cluster is not, or does not do, what a test needs of it."""


def unavailable() -> str:
    """Why there can be no cluster on this machine; "" if there can."""
    if os.geteuid():
        return "a cluster needs root: namespaces, links and mounts are made for it"
    if lacking := missing():
        named = ", ".join(f"{command} (package {package}, for {use})" for command, package, use in lacking)
        return f"these programs are missing: {named}. `python tests/real/cluster install` gets them by apt"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun here, which slow lines are made of"
    probe = ["unshare", "--fork", "--pid", "--mount-proc", "--uts", "--ipc", "--net", "--mount", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return f"namespaces cannot be made here: {done.stderr.strip()}" if done.returncode else ""


class Cluster:
    """One cluster. Nodes are named c1, c2, ...; the head is the machine itself, in its own namespaces."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.nodes: list[str] = [f"c{n}" for n in range(1, settings.nodes + 1)]
        """Those that are configured, in order. Further ones come and go by `add` and `remove`."""
        self.head = settings.head
        """The address under which nodes reach this machine."""
        self.shared = settings.state / "shared"
        """A directory that all nodes and this machine see."""
        self.disk = settings.state / "disk"
        """On each node a small disk of its own."""
        self._service_env = {
            "PATH": _PATH,
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "C.UTF-8",
            "SLURM_CONF": str(settings.state / "etc" / "slurm.conf"),
        }
        self._slurm = Slurm(settings, self._service_env)
        self._kept_jobs: dict[str, frozenset[str]] = {}

    # Up and down

    def up(self) -> None:
        """All nodes up and idle. Starts what is not there and leaves the rest alone.

        ClusterError says what did not work; what had been started is still there then (`down` takes it away).
        """
        if why := unavailable():
            raise ClusterError(why)
        for place in _PLACES:
            (self.settings.state / place).mkdir(parents=True, exist_ok=True)
        self.shared.chmod(0o1777)
        self.disk.chmod(0o1777)
        try:
            self._bridge()
            access.set_up(self.settings, self._names())
            self._slurm.up()
            for name in self.nodes:
                self._node(name).begin()
            for name in self.nodes:
                self._node(name).wait()
            self._slurm.ready(self.nodes)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as problem:
            said = problem.stderr if isinstance(problem, subprocess.CalledProcessError) else ""
            raise ClusterError(f"the cluster did not come up: {problem} {said or ''}".strip()) from problem

    def down(self) -> None:
        """Nothing of it is left. Also for one that is half up, or was left by somebody who was killed."""
        known = [self._node(name) for name in self._names()]
        for node in known:
            node.power_off()
        self._slurm.down()
        for link in self._links():
            ip_maybe("link", "delete", link)
        for group in sorted(Path("/sys/fs/cgroup/freezer").glob(f"cantle-cluster-{self.settings.number}-*")):
            # Bottom up, and again and again: a group can be removed a moment after its last process is gone.
            wait_until(lambda group=group: _removed(group), 30)
        shutil.rmtree(self.settings.state, ignore_errors=True)
        try:
            self.settings.state.parent.rmdir()
        except OSError:
            pass  # another one lives there

    def leftovers(self) -> list[str]:
        """What is there of it, in words: processes, mounts, links, files. Empty when it is down."""
        state = os.fsencode(self.settings.state)
        found = [f"link {link}" for link in self._links()]
        found += [
            f"mount {line.split()[4]}"
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if str(self.settings.state) in line
        ]
        if self.settings.state.exists():
            found.append(f"directory {self.settings.state}")
        found += map(str, Path("/sys/fs/cgroup/freezer").glob(f"cantle-cluster-{self.settings.number}-*"))
        for pid in (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
            try:
                if any(state + b"/" in Path(f"/proc/{pid}/{what}").read_bytes() for what in ("cmdline", "environ")):
                    found.append(f"process {pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
            except OSError:
                continue
        return found

    def _links(self) -> list[str]:
        own = f"{self.settings.bridge}v", f"{self.settings.bridge}t"
        return [name for name in os.listdir("/sys/class/net") if name == self.settings.bridge or name.startswith(own)]

    def _bridge(self) -> None:
        bridge = self.settings.bridge
        if Path(f"/sys/class/net/{bridge}").exists():
            return
        # An address of its own: else the bridge takes one of its ports', and changes it when that one goes.
        hardware = f"02:63:6e:{self.settings.number:02x}:00:fe"
        ip("link", "add", bridge, "address", hardware, "type", "bridge", "forward_delay", "0", "stp_state", "0")
        quiet(bridge)
        ip("address", "add", f"{self.head}/24", "dev", bridge)
        ip("link", "set", bridge, "up")

    def _node(self, name: str) -> Node:
        return Node(self.settings, name, self._service_env)

    def _names(self) -> list[str]:
        place = self.settings.state / "nodes"
        there = set(os.listdir(place)) if place.exists() else set()
        return sorted(there.union(self.nodes), key=index)

    # Use

    @property
    def env(self) -> dict[str, str]:
        """The environment of a user of this cluster: its Slurm and its ssh are found, and no other job is around."""
        own = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
        path = f"{self.settings.state / 'bin'}:{own.get('PATH', '')}:{_PATH}"
        # Open MPI under srun: its shared memory fails in some of a hundred starts on these nodes, and so does the fence that
        # Slurm's PMIx chooses by itself (22.05: 5 of 240 hang; with `ring` none of 300 on the first nodes of their jobs). One
        # that hangs nevertheless is tried again by itself, after ten seconds instead of 300.
        mpi = {"OMPI_MCA_btl": "self,tcp", "SLURM_PMIX_FENCE": "ring", "SLURM_PMIX_TIMEOUT": "10"}
        return {**mpi, **own, "PATH": path, "SLURM_CONF": self._service_env["SLURM_CONF"]}

    def address(self, node: str) -> str:
        """Its IPv4 address."""
        return self.settings.address(node)

    def entering(self, node: str, directory: str | os.PathLike[str] | None = None) -> list[str]:
        """The words that put a command into a node, without ssh: `[*cluster.entering("c1"), "hostname"]`."""
        where = os.fspath(directory or os.getcwd())
        if where.startswith(("/tmp", "/run", "/dev/shm")):
            where = "/"  # the node has its own
        return self._node(node).entering(where)

    def run_on(
        self,
        node: str,
        argv: Sequence[str],
        *,
        timeout: float = PATIENCE_S,
        check: bool = True,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a node to its end, without ssh; `text` is its input.

        ClusterError with what it said if it fails and `check` is set. After `timeout` seconds it is ended and has failed.
        """
        bounded = ["timeout", "-k", "2", str(timeout), *argv]
        return _run([*self.entering(node, cwd), *bounded], env or self.env, timeout + 10, check, text)

    def start_on(
        self, node: str, argv: Sequence[str], *, cwd: str | os.PathLike[str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """Start a command in a node, without ssh; `options` are `subprocess.Popen`'s.

        The process that comes back is the one that entered: a signal to it does not reach the command.
        """
        return subprocess.Popen([*self.entering(node, cwd), *argv], **{"env": self.env, **options})  # type: ignore[call-overload,no-any-return]

    def run(
        self, argv: Sequence[str], *, timeout: float = PATIENCE_S, check: bool = True, text: str = "", **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the head as a user of the cluster; as `run_on`."""
        return _run(argv, self.env, timeout, check, text, **options)

    def ssh(
        self, node: str, *words: str, timeout: float = PATIENCE_S, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line in a node by ssh."""
        return self.run(["ssh", node, *words], timeout=timeout, check=check)

    def slurm(
        self, argv: Sequence[str], *, timeout: float = PATIENCE_S, check: bool = True, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands on the head, in the shared directory: that is where its files go."""
        return self.run(argv, timeout=timeout, check=check, **{"cwd": self.shared, **options})

    def job_state(self, job: str) -> str:
        """RUNNING, TIMEOUT, ... of a job that Slurm still knows; "" of another."""
        told = self.slurm(["scontrol", "show", "job", job], check=False).stdout
        return told.partition("JobState=")[2].split(" ")[0].strip()

    def slurm_states(self) -> dict[str, str]:
        """What Slurm thinks of each node: idle, alloc, down*, ..."""
        return self._slurm.states()

    def keep_job(self, job: str, nodes: Iterable[str]) -> None:
        """`mend` shall not cancel this one, and leaves its nodes alone; it is some other test's."""
        self._kept_jobs[job] = frozenset(nodes)

    def others(self, job: str = "") -> list[str]:
        """Nodes that run and are not kept for another job than this one."""
        kept = (nodes for other, nodes in self._kept_jobs.items() if other != job)
        return sorted(filter(self.alive, set(self.nodes).difference(*kept)), key=index)

    def release_job(self, job: str) -> None:
        """From now on it is a job like others."""
        self._kept_jobs.pop(job, None)

    def guests(self, node: str) -> dict[int, str]:
        """Processes in a node that are no part of it, as this machine counts, and their command lines."""
        return self._node(node).guests()

    def alive(self, node: str) -> bool:
        """Whether the node runs at all; a frozen or cut one does."""
        return self._node(node).alive

    # Mishaps

    def kill(self, node: str, how: str = "power", tell: bool = False) -> None:
        """Let something happen to a node. `heal` undoes it.

        - `power`: its cable and then all of it goes at once; its peers hear nothing any more;
        - `crash`: all of it goes at once, and its peers' connections are closed;
        - `net`: it lives on and is cut off;
        - `hang`: all its processes are stopped, and its kernel still answers;
        - `slurmd`: only that service goes.

        `tell`: Slurm is told at once; by itself it takes half a minute to notice.
        """
        one = self._node(node)
        ways = {
            "power": one.power_off,
            "crash": one.crash,
            "net": one.cut,
            "hang": one.freeze,
            "slurmd": one.kill_slurmd,
        }
        if how not in ways:
            raise ValueError(f"a node can be killed by {', '.join(ways)}, not by {how!r}")
        if not one.alive:
            raise ClusterError(f"{node} is dead already")
        ways[how]()
        if tell:
            self._slurm.update([node], "down")

    def notice_after(self, seconds: int = 0) -> None:
        """Slurm takes a node for dead when it has not answered for so long; 0: as long as the settings say."""
        self._slurm.notice_after(seconds or self.settings.slurmd_timeout)

    def heal(self, node: str) -> None:
        """Whatever happened to it: it is up, on the net, and takes Slurm's work."""
        one = self._node(node)
        if not one.alive:
            one.begin()
            one.wait()
        else:
            if one.frozen:
                one.thaw()
            if not one.shaped:
                one.join()
            one.renew_slurmd()
        self._slurm.ready([node])

    def add(self) -> str:
        """A further node, which no configuration names; Slurm gets to know it. Returns its name."""
        name = next(name for name in (f"c{n}" for n in range(1, 200)) if not self._node(name).alive)
        self._node(name).directory.mkdir(exist_ok=True)
        access.names_change(self.settings, self._names())
        self._node(name).begin()
        self._node(name).wait()
        self._slurm.ready([name])
        return name

    def remove(self, node: str) -> None:
        """Take away what `add` brought."""
        if node in self.nodes:
            raise ClusterError(f"{node} belongs to the cluster; it can be killed, not removed")
        self._node(node).crash()
        self._slurm.forget(node)
        shutil.rmtree(self._node(node).directory, ignore_errors=True)
        access.names_change(self.settings, self._names())

    def shape(self, node: str, delay_ms: float = 0, loss: float = 0, seed: int = 1) -> None:
        """Make its line bad: each frame comes `delay_ms` later in each direction, `loss` percent do not come at all.

        Without any of them the line is good again. Connections stay.
        """
        if delay_ms or loss:
            self._node(node).shape(delay_ms, loss, seed)
        else:
            self._node(node).unshape()

    def fill(self, node: str) -> None:
        """Its own small disk is full."""
        full = f"dd if=/dev/zero of={self.disk}/.full bs=64k 2>/dev/null; dd if=/dev/zero of={self.disk}/.rest bs=1"
        self._node(node).inside(f"({full}) >/dev/null 2>&1 || true")

    def empty(self, node: str) -> None:
        """Its own small disk has room again, and nothing on it."""
        self._node(node).inside(f"find {self.disk} -mindepth 1 -delete")

    def settle(self, seconds: float = 30.0) -> bool:
        """Give what runs on the nodes the time to end by itself: whether nothing is left."""
        nodes = [self._node(name) for name in self.nodes if name in self._names()]
        return wait_until(lambda: not any(one.guests() for one in nodes if one.alive), seconds)

    def mend(self) -> list[str]:
        """After a test: every node as it was and idle, no job left. Returns what had to be ended on the nodes, in words.

        RuntimeError if a node does not become idle.
        """
        for name in self._names():
            if name not in self.nodes:
                self.remove(name)
        self._cancel_jobs()
        ended = []
        states = self._slurm.states()
        free = sorted(set(self.nodes).difference(*self._kept_jobs.values()), key=index)
        for name in free:
            one = self._node(name)
            one.unshape()
            if not one.alive or one.frozen or not self._plugged(name) or not _works(states.get(name, "")):
                self.heal(name)
            self.empty(name)
            for pid, line in one.guests().items():
                ended.append(f"{name}: {line}")
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
        self._slurm.idle(free)
        return ended

    def _plugged(self, name: str) -> bool:
        return Path(f"/sys/class/net/{self.settings.link(name)}/master").exists()

    def _cancel_jobs(self) -> None:
        jobs = set(self.slurm(["squeue", "-h", "-o", "%i"]).stdout.split()) - self._kept_jobs.keys()
        if jobs:
            self.slurm(["scancel", *jobs], check=False)
            mine = ",".join(sorted(jobs))
            wait_until(lambda: not self.slurm(["squeue", "-h", "-j", mine], check=False).stdout.strip(), 60, 0.2)


def _works(state: str) -> bool:
    return state in ("idle", "mix", "alloc", "comp")


def _removed(group: Path) -> bool:
    for place, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(place)
        except OSError:
            pass
    return not group.exists()


def _run(
    argv: Sequence[str], env: Mapping[str, str], timeout: float, check: bool, text: str, **options: object
) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(  # type: ignore[call-overload]
        list(argv), capture_output=True, text=True, env=dict(env), input=text, timeout=timeout, check=False, **options
    )
    if check and done.returncode:
        raise ClusterError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def free_numbers() -> Iterator[int]:
    """Numbers of clusters that nobody has up by hand, lowest first; whether one is in use shows when it is claimed."""
    from .settings import SIDE_BY_SIDE, settings

    for number in range(SIDE_BY_SIDE):
        if not (settings(number).state / "kept").exists():
            yield number


def claim(number: int) -> socket.socket | None:
    """The right to this cluster, for as long as the socket lives in any process; None if somebody else has it.

    A name in the kernel and not a lock file: it needs no removing, and is gone with its last holder.
    """
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0cantle-cluster-{number}")
    except OSError:
        name.close()
        return None
    return name
