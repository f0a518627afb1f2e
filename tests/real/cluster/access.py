"""How is a node reached? By the system's own ssh and sshd, with keys and a configuration that nobody else uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable

from .settings import Settings

# Sessions on a node find Slurm, and what is being tested, as they would after a user's login scripts.
_CARRIED = ("PYTHONPATH", "LC_ALL")


def set_up(cluster: Settings, nodes: Iterable[str]) -> None:
    """Keys, sshd's and ssh's configuration, the hosts file of the nodes, and an `ssh` for the head's PATH."""
    etc = cluster.state / "etc"
    for key in ("user", "host"):
        if not (etc / key).exists():
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"cantle-cluster-{key}", "-f", str(etc / key)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    host_key = " ".join((etc / "host.pub").read_text().split()[:2])
    (etc / "known_hosts").write_text(f"c*,{cluster.network}.* {host_key}\n")
    (etc / "nothing").touch()
    carried = " ".join(f'"{name}={os.environ[name]}"' for name in _CARRIED if os.environ.get(name))
    (etc / "sshd_config").write_text(
        f"""Port 22
HostKey {etc}/host
AuthorizedKeysFile {etc}/user.pub
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200
MaxSessions 200
AcceptEnv LANG LC_*
SetEnv "SLURM_CONF={etc}/slurm.conf" {carried}
Subsystem sftp internal-sftp
"""
    )
    names_change(cluster, nodes)
    wrappers = cluster.state / "bin"
    for program in ("ssh", "scp", "sftp"):
        real = shutil.which(program, path="/usr/bin:/bin:/usr/local/bin") or f"/usr/bin/{program}"
        (wrappers / program).write_text(f'#!/bin/sh\nexec {real} -F {etc}/ssh_config "$@"\n')
        (wrappers / program).chmod(0o755)


def names_change(cluster: Settings, nodes: Iterable[str]) -> None:
    """These are the nodes now: ssh's aliases and the hosts file name them."""
    etc = cluster.state / "etc"
    aliases = "".join(f"Host {node}\n  HostName {cluster.address(node)}\n" for node in nodes)
    # Key agreement by curves: the default costs a fifth of a second on a busy machine.
    everyone = f"""Host c* {cluster.network}.*
  User root
  IdentityFile {etc}/user
  IdentitiesOnly yes
  UserKnownHostsFile {etc}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 10
  LogLevel ERROR
  KexAlgorithms curve25519-sha256
"""
    _in_place(etc / "ssh_config", aliases + everyone)
    lines = ["127.0.0.1 localhost", f"{cluster.head} head {os.uname().nodename}"]
    lines += [f"{cluster.address(node)} {node}" for node in nodes]
    _in_place(etc / "hosts", "\n".join(lines) + "\n")


def _in_place(path: os.PathLike[str], text: str) -> None:
    """Not a new file in its place: nodes have this one mounted."""
    with open(path, "w") as file:
        file.write(text)
