"""How is Slurm set up over the nodes? One munged and one slurmctld on the head; clients find them by SLURM_CONF."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping

from .identity import daemon, living, stop, wait_until
from .settings import Settings

_READY = frozenset(("idle", "mix", "alloc", "comp"))
_NUDGE_S = 15.0
"""A node that does not come back by itself in this time is told to."""


def configuration(cluster: Settings) -> dict[str, str]:
    """Contents of Slurm's files, by name."""
    state = cluster.state
    gres = f"Gres=gpu:{cluster.gpus}" if cluster.gpus else ""
    tracking = "cgroup" if cluster.freezer else "linuxproc"
    main = f"""
ClusterName=cantle{cluster.number}
SlurmctldHost={socket.gethostname().partition(".")[0]}({cluster.head})
SlurmctldPort={cluster.controller_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge/socket
CredType=cred/munge
StateSaveLocation={state}/slurm
SlurmdSpoolDir={state}/nodes/%n/spool
SlurmctldPidFile={state}/pid/slurmctld.own
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdLogFile={state}/log/slurmd-%n.log
ProctrackType=proctrack/{tracking}
# The cores that nodes have are more than the machine has: they cannot be bound to, and have to be believed.
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={cluster.memory // cluster.cores}
GresTypes=gpu
MaxNodeCount=64
TreeWidth=64
ReturnToService=2
SlurmdTimeout={cluster.slurmd_timeout}
SlurmctldTimeout=10
MessageTimeout=10
TCPTimeout=2
KillWait={cluster.kill_wait}
UnkillableStepTimeout=30
BatchStartTimeout=60
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=2,bf_interval=2,permit_job_expansion
MailProg=/bin/true
PropagateResourceLimits=NONE
NodeName=c[1-{cluster.nodes}] NodeAddr={cluster.network}.[1-{cluster.nodes}] CPUs={cluster.cores} \
RealMemory={cluster.memory} {gres} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
"""
    files = {"slurm.conf": main, "gres.conf": "\n"}
    if cluster.gpus:
        files["gres.conf"] = f"Name=gpu File={state}/dev/gpu[0-{cluster.gpus - 1}]\n"
    if cluster.freezer:
        files["cgroup.conf"] = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
    return files


def slurmd_options(cluster: Settings, node: str) -> str:
    """Words of slurmd on this node; one that the configuration does not name brings its own description."""
    if node in [f"c{n}" for n in range(1, cluster.nodes + 1)]:
        return f"-N {node}"
    gres = f" Gres=gpu:{cluster.gpus}" if cluster.gpus else ""
    return f"-N {node} -Z --conf 'CPUs={cluster.cores} RealMemory={cluster.memory}{gres}'"


class Slurm:
    """The head's part: two daemons."""

    def __init__(self, cluster: Settings, env: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._env = env
        self._munged = cluster.state / "pid" / "munged"
        self._controller = cluster.state / "pid" / "slurmctld"

    def up(self) -> None:
        """Start what does not run. Does not wait for nodes."""
        state = self._cluster.state
        for name, text in configuration(self._cluster).items():
            (state / "etc" / name).write_text(text)
        for gpu in range(self._cluster.gpus):
            device = state / "dev" / f"gpu{gpu}"
            if not device.exists():  # a twin of /dev/null
                os.mknod(device, 0o20666, os.makedev(1, 3))
        key = state / "munge" / "key"
        if not key.exists():
            key.write_bytes(os.urandom(128))
            key.chmod(0o400)
        if not living(self._munged):
            place = state / "munge"
            words = ["--foreground", f"--socket={place}/socket", f"--key-file={key}", f"--pid-file={place}/pid"]
            words += [f"--seed-file={place}/seed", "--num-threads=2"]
            daemon(["/usr/sbin/munged", *words], self._munged, state / "log" / "munged.log", self._env)
        if not living(self._controller):
            daemon(["/usr/sbin/slurmctld", "-D", "-i"], self._controller, state / "log" / "slurmctld.out", self._env)
        if not wait_until(lambda: "is UP" in self._told("scontrol", "ping"), 120):
            raise RuntimeError(f"slurmctld does not answer; see {state}/log: {self._told('scontrol', 'ping')}")

    def down(self) -> None:
        """End both; the controller first, while it can still be told apart from a stranger."""
        stop(self._controller, signal.SIGTERM, 5)
        stop(self._munged, signal.SIGTERM, 3)

    def _told(self, *argv: str) -> str:
        done = subprocess.run(argv, capture_output=True, text=True, env=self._env, check=False, timeout=60)
        return done.stdout + done.stderr

    def states(self) -> dict[str, str]:
        """What Slurm thinks of each node: idle, alloc, down*, ..."""
        lines = self._told("sinfo", "-h", "-N", "-o", "%N %t").splitlines()
        return {name: state for name, _, state in (line.partition(" ") for line in lines)}

    def ready(self, nodes: Iterable[str], seconds: float = 120) -> None:
        """Wait until all of these take work. RuntimeError if one does not."""
        nodes = list(nodes)
        deadline = time.monotonic() + seconds
        nudged = False
        while left := [node for node, state in self._of(nodes).items() if state not in _READY]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"these nodes do not answer Slurm: {', '.join(left)}; {self.states()}")
            if not nudged and time.monotonic() > deadline - seconds + _NUDGE_S:
                self.update(left, "resume")
                nudged = True
            time.sleep(0.1)

    def idle(self, nodes: Iterable[str], seconds: float = 20) -> None:
        """Wait until nothing holds any of these. A job that Slurm goes on completing is made to let go after so long.

        RuntimeError if that does not help: the next job would wait for these nodes, and its test with it.
        """
        nodes = list(nodes)

        def busy() -> list[str]:
            return [node for node, state in self._of(nodes).items() if state != "idle"]

        if wait_until(lambda: not busy(), seconds, 0.1):
            return
        stuck = busy()
        self.update(stuck, "down")
        self.update(stuck, "resume")
        if not wait_until(lambda: not busy(), 6 * seconds, 0.1):
            raise RuntimeError(f"these nodes do not become idle: {', '.join(busy())}; {self.states()}")

    def _of(self, nodes: list[str]) -> dict[str, str]:
        states = self.states()
        return {node: states.get(node, "unknown") for node in nodes}

    def update(self, nodes: Iterable[str], state: str) -> None:
        """Tell it what it has not noticed yet: `down` or `resume`."""
        self._told("scontrol", "update", f"nodename={','.join(nodes)}", f"state={state}", "reason=test")

    def notice_after(self, seconds: int) -> None:
        """Be so patient with nodes that do not answer."""
        path = self._cluster.state / "etc" / "slurm.conf"
        path.write_text(re.sub(r"(?m)^SlurmdTimeout=.*$", f"SlurmdTimeout={seconds}", path.read_text()))
        self._told("scontrol", "reconfigure")
        if not wait_until(
            lambda: f"SlurmdTimeout = {seconds} sec" in _spaced(self._told("scontrol", "show", "config")), 60
        ):
            raise RuntimeError("Slurm does not take another SlurmdTimeout")

    def forget(self, node: str) -> None:
        """Of a node that the configuration does not name and that is gone. Refused while a job there is being completed."""
        self.update([node], "down")

        def gone() -> bool:
            self._told("scontrol", "delete", f"nodename={node}")
            return node not in self.states()

        if not wait_until(gone, 60, 0.1):
            raise RuntimeError(f"Slurm does not let {node} go: {self._told('scontrol', 'delete', f'nodename={node}')}")


def _spaced(text: str) -> str:
    return re.sub(r" +", " ", text)
