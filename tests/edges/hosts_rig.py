"""A stand-in for ssh that runs the command here or fails as ssh does, one for the runner, and a report that remembers."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cantle.allocations.fleet.source import Invitation

SSH = r"""#!/bin/bash
printf '%s\n' "$*" >> "$RIG/ssh.log"
while [ "$1" != -- ]; do shift; done
host=$2; shift 2
case "${host##*@}" in
  refused*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
  unknown*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
  unreachable*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
  denied*) echo "me@$host: Permission denied (publickey,password)." >&2; exit 255 ;;
  newkey*) echo "No ED25519 host key is known for $host and you have requested strict checking." >&2
           echo "Host key verification failed." >&2; exit 255 ;;
  changed*) cat >&2 <<'END'
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Offending ED25519 key in /etc/ssh/ssh_known_hosts:7
Host key verification failed.
END
           exit 255 ;;
  busy*) n=$(cat "$RIG/$host.n" 2>/dev/null || echo 0); echo $((n + 1)) > "$RIG/$host.n"
         if [ "$n" -lt 2 ]; then
           echo "kex_exchange_identification: Connection closed by remote host" >&2; exit 255
         fi ;;
  hung*) echo "Connection timed out during banner exchange" >&2
         echo "Connection to 10.0.0.7 port 22 timed out" >&2; exit 255 ;;
  chatty*) head -c 300000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero | tr '\\0' y >&2; printf 'no end of line' ;;
  far*) cd "$RIG" && setsid env -i HOME="$RIG/home" PATH=/usr/bin:/bin RIG="$RIG" /bin/sh -c "$*"; exit $? ;;
  slow*) echo + >> "$RIG/slow.log"; sleep 0.3; echo - >> "$RIG/slow.log" ;;
  silent*) exec sleep 60 ;;
  gone*) if [ -e "$RIG/$host.up" ]; then echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; fi
         touch "$RIG/$host.up" ;;
esac
echo "Welcome to $host, all activities are monitored." >&2
cd "$RIG" && exec env -i HOME="$RIG/home" USER=me LOGNAME=me SHELL=/bin/sh PATH=/usr/bin:/bin RIG="$RIG" SSH_CLIENT=1.2.3.4 \
    /bin/sh -c "$*"
"""

RUNNER = r"""#!/bin/bash
name=none
args=("$@")
for ((i = 0; i < $#; i++)); do [ "${args[i]}" = --name ] && name=${args[i + 1]}; done
pwd > "RIGDIR/$name.pwd"
env -0 > "RIGDIR/$name.env"
IFS= read -r letter; printf '%s' "$letter" > "RIGDIR/$name.letter"
printf '%s\n' "$*" > "RIGDIR/$name.argv.new" && mv "RIGDIR/$name.argv.new" "RIGDIR/$name.argv"
case $name in broken*) echo "No module named msgspec" >&2; exit 1 ;; esac
echo '@cantle joined'
case $name in brief*|gone*) exit 5 ;; esac
cat > /dev/null
echo over > "RIGDIR/$name.over"
"""


class Told:
    """What a source told."""

    def __init__(self) -> None:
        self.expected = 0
        self.failures: list[str] = []
        self.notes: list[str] = []
        self._changed = threading.Condition()

    def expect(self, n: int) -> None:
        with self._changed:
            self.expected += n

    def failed(self, n: int, why: str) -> None:
        with self._changed:
            self.failures += [why] * n
            self._changed.notify_all()

    def note(self, text: str) -> None:
        self.notes.append(text)


class Rig:
    """A folder with the stand-ins in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        self.ssh = self.program("ssh", SSH)
        self.python = self.program("python", RUNNER.replace("RIGDIR", str(folder)))
        self.environ = {**os.environb, b"RIG": os.fsencode(folder), b"FOO": b"1"}

    def program(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def invitation(self) -> Invitation:
        return Invitation(str(self.folder / "letter"), b"a letter\n", self.python)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def env(self, name: str) -> dict[str, str]:
        entries = self.text(f"{name}.env").rstrip("\0").split("\0")
        return dict(entry.split("=", 1) for entry in entries)

    def exists(self, name: str) -> bool:
        return (self.folder / name).exists()


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    stop = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < stop, "it did not come about"
        time.sleep(0.01)
