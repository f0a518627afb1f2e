"""What is one node, from its first process to its cable, and in which ways can it fail?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .identity import begun, daemon, living, remember, stop, wait_until
from .settings import Settings, index
from .slurm import slurmd_options

_HERE = Path(__file__).parent
_OWN_IN_EACH_NODE = ("/tmp/", "/run/", "/dev/shm/")
_SERVICES = frozenset(
    ("sshd", "slurmd", "slurmstepd")
)  # up to the first hyphen: systems call them slurmd-wlm, sshd-session


def ip(*words: str) -> None:
    """Call ip. subprocess.CalledProcessError if it does not do it."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def ip_maybe(*words: str) -> None:
    """Call ip, for things that may have been done or gone already."""
    subprocess.run(["ip", *words], check=False, capture_output=True)


class Node:
    """A node's head end: what of it can be done from outside."""

    def __init__(self, cluster: Settings, name: str, env: Mapping[str, str]) -> None:
        self.name = name
        self.cluster = cluster
        self.address = cluster.address(name)
        self.directory = cluster.node_directory(name)
        self._env = env
        self._init = self.directory / "init"
        self._outer = self.directory / "unshare"
        self._relay = self.directory / "relay"
        self._link = cluster.link(name)
        # Its own for good, as a machine's is: else its peers go on for seconds sending to the address that it had before.
        self._hardware = f"02:63:6e:{cluster.number:02x}:01:{index(name):02x}"

    # Life

    def begin(self) -> None:
        """Start it, unless it lives. It is there when `wait` returns."""
        if self.alive:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "ready").unlink(missing_ok=True)
        (self.directory / "hostname").write_text(f"{self.name}\n")
        (self.directory / "spool").mkdir(exist_ok=True)
        freezer = self.cluster.freezer_group(self.name) if self.cluster.freezer else None
        if freezer:
            freezer.mkdir(exist_ok=True)
        kept = {str(path) for path in (_HERE.parents[2], Path(sys.prefix), Path(sys.base_prefix))}
        env = {
            **self._env,
            "NAME": self.name,
            "ADDRESS": self.address,
            "DIRECTORY": str(self.directory),
            "STATE": str(self.cluster.state),
            "DISK_MIB": str(self.cluster.disk),
            "FREEZER": str(freezer or ""),
            "KEEP": "\n".join(sorted(path for path in kept if f"{path}/".startswith(_OWN_IN_EACH_NODE))),
            "SLURMD": slurmd_options(self.cluster, self.name),
        }
        own = ["--fork", "--kill-child=KILL", "--pid", "--mount-proc", "--uts", "--ipc", "--net", "--mount"]
        script = str(_HERE / "node.sh")
        daemon(["unshare", *own, "/bin/bash", script], self._outer, self.directory / "log", env)
        outer = living(self._outer)
        children = Path(f"/proc/{outer}/task/{outer}/children")
        if not wait_until(lambda: children.exists() and children.read_text().strip(), 60):
            raise RuntimeError(f"{self.name} did not start: {self.log()}")
        pid = int(children.read_text().split()[0])
        remember(pid, self._init)
        # Between its fork and its exec the child is still in our network.
        wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"), 60)
        ip_maybe("link", "delete", self._link)
        peer = ["peer", "name", "eth0", "address", self._hardware, "netns", str(pid)]
        ip("link", "add", self._link, "type", "veth", *peer)
        quiet(self._link)
        ip("link", "set", self._link, "master", self.cluster.bridge, "up")

    def wait(self) -> None:
        """Until its services run. RuntimeError if it ends instead."""
        ready = self.directory / "ready"
        if not wait_until(lambda: ready.exists() or not self.alive, 120) or not self.alive:
            raise RuntimeError(f"{self.name} did not come up: {self.log()}")

    def log(self) -> str:
        """The last lines that it said."""
        return "\n".join((self.directory / "log").read_text(errors="replace").splitlines()[-5:])

    @property
    def alive(self) -> bool:
        """Whether its first process lives."""
        return bool(living(self._init))

    @property
    def pid(self) -> int:
        """Its first process, as the head counts. RuntimeError if it is dead."""
        if not (pid := living(self._init)):
            raise RuntimeError(f"{self.name} is not up")
        return pid

    def entering(self, directory: str) -> list[str]:
        """The words that put a command into this node."""
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", f"-w{directory}", "--"]

    def processes(self) -> list[int]:
        """All of them, as the head counts; the first one first."""
        first = self.pid
        own = os.readlink(f"/proc/{first}/ns/pid")
        found = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") == own and pid != first and begun(pid):
                    found.append(pid)
            except OSError:
                continue
        return [first, *found]

    def guests(self) -> dict[int, str]:
        """Processes that are no part of the node itself, as the head counts, and their command lines."""
        found = {}
        for pid in self.processes()[1:]:
            try:
                if Path(f"/proc/{pid}/exe").readlink().name.partition("-")[0] in _SERVICES:
                    continue
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            found[pid] = " ".join(word.decode(errors="replace") for word in words if word)
        return found

    # Death, in kinds

    def power_off(self) -> None:
        """The cable first, then everything at once: nothing that says farewell gets out."""
        self.unshape()
        ip_maybe("link", "set", self._link, "nomaster")
        self.crash()

    def crash(self) -> None:
        """Everything at once, with the cable in: its peers are told by the kernel."""
        stop(self._init, signal.SIGKILL, 60)
        stop(self._outer, signal.SIGKILL, 60)
        self.unshape()
        ip_maybe("link", "delete", self._link)
        # Who asks for it next is to find out soon that nobody is there, and not to trust what he knew.
        ip_maybe("neighbour", "delete", self.address, "dev", self.cluster.bridge)
        (self.directory / "ready").unlink(missing_ok=True)
        self.frozen = False

    def cut(self) -> None:
        """Out of the switch. Nobody is told: the head believes its address good, and frames go nowhere."""
        self.unshape()
        words = ["neighbour", "replace", self.address, "lladdr", self._hardware]
        ip(*words, "dev", self.cluster.bridge, "nud", "permanent")
        ip("link", "set", self._link, "nomaster")

    def join(self) -> None:
        """Back into the switch."""
        ip_maybe("link", "set", self._link, "master", self.cluster.bridge, "up")
        ip_maybe("neighbour", "delete", self.address, "dev", self.cluster.bridge)

    @property
    def frozen(self) -> bool:
        """Whether its processes are stopped."""
        return (self.directory / "frozen").exists()

    @frozen.setter
    def frozen(self, value: bool) -> None:
        mark = self.directory / "frozen"
        if value:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def freeze(self) -> None:
        """SIGSTOP to all; its kernel still answers."""
        self.frozen = True
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT to all, and to those outside who brought one of them in: nsenter stops itself with its child."""
        self._signal_all(signal.SIGCONT)
        for pid in self.processes()[1:]:
            try:
                outer = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
                if Path(f"/proc/{outer}/comm").read_text() == "nsenter\n":
                    os.kill(outer, signal.SIGCONT)
            except OSError:
                continue
        self.frozen = False

    def _signal_all(self, what: signal.Signals) -> None:
        # The first process stays: it takes no part in the work, and has to be there for whoever enters the node.
        # Twice: between the list and the signal a process may have had a child.
        for _ in range(2):
            for pid in self.processes()[1:]:
                try:
                    os.kill(pid, what)
                except ProcessLookupError:
                    pass

    # Services and disk

    def slurmd(self) -> int:
        """The number of its slurmd, as the node counts; 0 if none runs."""
        said = subprocess.run(
            [*self.entering("/"), "sh", "-c", "read -r p </run/slurmd.pid && kill -0 $p && echo $p"],
            capture_output=True,
            text=True,
            check=False,
        )
        return int(said.stdout.strip() or 0)

    def kill_slurmd(self) -> None:
        """Only this; its steps' keepers and their processes live on."""
        self.inside(f"kill -KILL {self.slurmd()}")
        wait_until(lambda: not self.slurmd(), 60)

    def renew_slurmd(self) -> None:
        """Start it if it is dead; else have it report to the controller now, and not when it is asked next."""
        if pid := self.slurmd():
            self.inside(f"kill -HUP {pid}")
        else:
            self.inside(f"/usr/sbin/slurmd {slurmd_options(self.cluster, self.name)}")

    def inside(self, script: str) -> None:
        """Have the node's shell do something that cannot fail. RuntimeError if it does."""
        done = subprocess.run(
            [*self.entering("/"), "/bin/bash", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**self._env},
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {script}: {done.stderr}")

    # The way to it

    @property
    def shaped(self) -> bool:
        """Whether a relay stands in the way."""
        return bool(living(self._relay))

    def shape(self, delay_ms: float, loss: float, seed: int) -> None:
        """Have each frame, in both directions, come `delay_ms` later, and `loss` percent of them not at all."""
        self.unshape()
        ready = self.directory / "relay-ready"
        ready.unlink(missing_ok=True)
        words = [self._link, self.cluster.tap(self.name), self.cluster.bridge, str(ready)]
        words += [str(delay_ms), str(loss), str(seed)]
        log = self.directory / "relay-log"
        daemon([sys.executable, str(_HERE / "relay.py"), *words], self._relay, log, self._env)
        if not wait_until(lambda: ready.exists() or not living(self._relay), 60) or not living(self._relay):
            raise RuntimeError(f"no relay for {self.name}: {log.read_text()[-500:]}")

    def unshape(self) -> None:
        """The cable alone again."""
        if self._relay.exists():
            stop(self._relay, signal.SIGTERM, 3)
            ip_maybe("link", "set", self._link, "master", self.cluster.bridge)


def quiet(link: str) -> None:
    """No IPv6 there: nothing that nobody asked for goes over it."""
    try:
        Path(f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6").write_text("1")
    except OSError:
        pass  # a kernel without it
