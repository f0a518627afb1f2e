"""How is a command run on a host from beginning to end, as if it ran here? Its files are copied, then it is begun there.

What it prints comes here, its exit status is ours, and so are our signals its own. Without a terminal they go over the
command's standard input, a word each; when that ends, because we have gone, the command is told to end as well.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from cantle.allocations.hosts import setting_up, wording
from cantle.allocations.hosts.host import Host
from cantle.allocations.hosts.setting_up import in_home, quoted, set_up
from cantle.errors import MachineError

BEGIN = ".begin"
"""The script in the errand's folder that begins it."""
_COPY_S = 600.0


def put(host: Host, folder: str, files: bytes, ssh: Sequence[str]) -> str:
    """Unpack the archive into a new folder of this name on the host. Its absolute path there. Raises MachineError.

    The folder lies in the host's `directory`, or in `cantle` in the home there.
    """
    parent = in_home(host.directory or "~/cantle").decode()
    steps = f'd={parent}/{shlex.quote(folder)}; mkdir -p "$d" && cd "$d" && tar -xf - && pwd -P'
    words = [*ssh, "-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--", host.address]
    try:
        done = subprocess.run(
            [*words, f"exec /bin/sh -c {shlex.quote(steps)}"],
            input=files,
            capture_output=True,
            timeout=_COPY_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"{host.name}: copying was not through within {_COPY_S:g} s") from None
    except OSError as problem:
        raise MachineError(f"{ssh[0]} could not be started: {problem.strerror}") from None
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        raise MachineError(wording.why(host, wording.End("connecting", done.returncode, said, [])))
    return done.stdout.decode(errors="replace").splitlines()[-1]


def beginning(host: Host, inside: str, arguments: Sequence[str], environ: Mapping[bytes, bytes], python: str) -> bytes:
    """The script that begins `cantle ARGUMENTS` on the host, in the folder `inside` the errand's."""
    lines = [
        b"#!/bin/bash",
        b"# With the word `watch` it takes signals from its standard input; what follows `again` is done instead.",
        b'cantle_folder=$(cd "$(dirname "$0")" && pwd -P)',
        b'cd "$(dirname "$0")"/%s || exit 96' % quoted(inside),
    ]
    lines += [*_teller(host), *set_up(host, environ, python)]
    way = quoted(f"{host.address}\tbash {_login(host)}")
    lines.append(b'export CANTLE_BEGUN_BY=%s$(printf %%q "$cantle_folder/%s")' % (way, BEGIN.encode()))
    lines += [
        b'if [ "$1" = watch ]; then',
        b"exec 3<&0",
        b'{ while read -r cantle_word; do kill -s "$cantle_word" $$; done; kill -s TERM $$; } <&3 3<&- >/dev/null 2>&1 &',
        b"exec 3<&- </dev/null",
        b"fi",
    ]
    begin = b" ".join([b"exec", *map(quoted, host.container), b'"$cantle_python"', b"-m cantle"])
    lines.append(b'if [ "$1" = again ]; then shift; %s "$@"; fi' % begin)
    lines.append(b" ".join([begin, *map(quoted, arguments)]))
    return b"\n".join(lines) + b"\n"


def _teller(host: Host) -> list[bytes]:
    """Let the script tell a person what it cannot go on with."""
    cases = [(f"{setting_up.FAILED} {number}", setting_up.FAILED, f"{number} \1") for number in range(len(host.steps))]
    others = (setting_up.NO_MODULES, setting_up.NO_PYTHON, setting_up.OLD_PYTHON, setting_up.NO_CANTLE)
    cases += [(f"{marker} ", marker, "\1") for marker in others]
    lines = [b"cantle_tell() {", b'case "$1 $2" in']
    for pattern, marker, rest in cases:
        what, mend = wording.of_marker(host, marker, rest) or ("", "")
        text = quoted(f"cantle: {host.name}: {what}{'; ' + mend if mend else ''}")
        last = b"'\"${!#}\"'"  # the last thing that is told: a status, or a version
        lines.append(b"%s*) echo %s >&2;;" % (quoted(pattern), text.replace(b"\1", last)))
    return [*lines, b"esac", b"}"]


def run(host: Host, folder: str, ssh: Sequence[str]) -> int:
    """Begin what was put into this folder of the host, and stay with it until it ends. Its exit status."""
    begin = f"exec /bin/bash {_login(host)}{shlex.quote(f'{folder}/{BEGIN}')}"
    alive = ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    if sys.stdin.isatty() and sys.stdout.isatty():
        # The terminal itself passes Ctrl-C on; what ssh does not take of it is not for us either.
        with _heeding(_nothing):
            return subprocess.run([*ssh, "-t", *alive, "--", host.address, begin], check=False).returncode
    words = [*ssh, "-T", "-x", "-o", "BatchMode=yes", *alive, "--", host.address, f"{begin} watch"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)
    assert process.stdin is not None
    fd = process.stdin.fileno()

    def pass_on(number: int) -> None:
        try:
            os.write(fd, f"{signal.Signals(number).name.removeprefix('SIG')}\n".encode())
        except OSError:  # it has ended meanwhile
            pass

    with _heeding(pass_on):
        status = process.wait()
    process.stdin.close()
    return status


def _login(host: Host) -> str:
    return "-l " if host.environment == "login" else ""


def _nothing(_: int) -> None:
    """It has reached the other side already."""


@contextmanager
def _heeding(pass_on: Callable[[int], None]) -> Iterator[None]:
    """Signals that end a program are passed on."""

    def heed(number: int, _: FrameType | None) -> None:
        pass_on(number)

    before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
