"""What is done on a host before its runner begins? A shell script, which the host's shell reads from its standard input.

Over stdin, and not as words of a command, because then it passes through no login shell's quoting, has no bound on its
length, and nobody else on the host can read it in a list of processes. Files and the invitation follow in the same stream. A
shell may read more than the line it needs, so each part is sent when the one before has said `@cantle next`; further lines
that begin with `@cantle` tell how far it is.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cantle.allocations.hosts.host import Host
from cantle.allocations.hosts.setting_up import PLAIN_PATH, in_home, quoted, set_up
from cantle.errors import RequestError

MARK = "@cantle "
"""Begins each line by which the script tells how far it is; then comes one of these words. What somebody else has printed
before, perhaps without an end of its line, does not matter."""
NEXT, STEP, READY = "next", "step", "ready"

_WATCHER = [
    b"cantle_watcher=",
    b"if [ -r /proc/$$/stat ]; then",
    b"{ trap 'kill $cantle_nap; exit 0' TERM",
    b"while read -r cantle_a cantle_b cantle_c cantle_parent cantle_rest </proc/$$/stat; do",
    b'[ "$cantle_parent" = "$PPID" ] || kill -KILL 0',
    b"sleep 1 & cantle_nap=$!; wait $cantle_nap",
    b"done; } </dev/null >/dev/null 2>&1 &",
    b"cantle_watcher=$!",
    b"fi",
]
"""While the set-up goes on nobody reads the standard input, so its end ends nothing. But when the connection goes, so does the
process that serves it there, the shell's parent: then the shell's group is ended, with the command that it waits for."""
_NO_WATCHER = b'[ -z "$cantle_watcher" ] || { kill "$cantle_watcher"; wait "$cantle_watcher"; } 2>/dev/null'
"""From now on the runner hears the end of its standard input."""

MOST_BYTES = 64 << 20
"""So much may be copied to a host before its runner begins; it goes to each of them anew."""


def script_for(
    host: Host, command: Sequence[str], python: str, environ: Mapping[bytes, bytes], files: bytes
) -> list[bytes]:
    """The parts of the script that begins the runner `command`, whose first word is the interpreter. Then follow the files.

    `python` is the conductor's interpreter; on a host that names none it is taken if it is there. `environ` is the
    conductor's environment. `files` is the archive of what is copied, b"" for nothing.
    """
    body = [
        b"cantle_tell() { printf '\\n%s%%s\\n' \"$*\"; }" % MARK.encode(),
        b"cantle_main() {",
        *_WATCHER,
        b"cantle_tell %s" % NEXT.encode(),
    ]
    if host.directory:
        where = in_home(host.directory)
        body.append(b"mkdir -p %s && cd %s || exit 96" % (where, where))
    if files:
        body.append(b"head -c %d | tar -xf - || exit 96" % len(files))
    body += set_up(host, environ, python)
    words = b" ".join([*map(quoted, host.container), b'"$cantle_python"', *map(quoted, command[1:])])
    body += [_NO_WATCHER, b"cantle_tell %s" % READY.encode(), b"exec %s" % words, b"}"]
    script = b"\n".join(body) + b"\ncantle_main; exit 1\n"
    return [_chosen_shell(host), script] if host.shapes_environment else [script]


def archive(paths: Sequence[str]) -> bytes:
    """These files and folders under their own names, as an archive; b"" of nothing. Raises RequestError."""
    return archive_of((Path(path), Path(path).name) for path in paths) if paths else b""


def archive_of(named: Iterable[tuple[Path | bytes | None, str]]) -> bytes:
    """Files and folders, contents of files, or (None) empty folders, each under its name there. Raises RequestError."""
    import tarfile

    size = 0
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for what, name in named:
            if what is None or isinstance(what, bytes):
                entry = tarfile.TarInfo(name)
                entry.mode, entry.type = (0o700, tarfile.DIRTYPE) if what is None else (0o600, tarfile.REGTYPE)
                entry.size = len(what or b"")
                tar.addfile(entry, io.BytesIO(what or b""))
                continue
            try:
                size += sum(each.stat().st_size for each in (what, *what.rglob("*")) if each.is_file())
                if size > MOST_BYTES:
                    raise RequestError(
                        f"{what} and what is copied before it are more than {MOST_BYTES >> 20} MiB, which would go to each "
                        "host anew: put it where the hosts see it"
                    )
                tar.add(what, name)
            except OSError as error:
                raise RequestError(f"{error.filename or what} cannot be copied to a host: {error.strerror}") from None
    return buffer.getvalue()


def _chosen_shell(host: Host) -> bytes:
    """The first line: which shell reads the rest, and with which environment. Set-up commands are written for bash."""
    own = (
        b'HOME="$HOME" USER="$USER" LOGNAME="${LOGNAME:-$USER}" SHELL="${SHELL:-/bin/sh}" PATH=%s' % PLAIN_PATH.encode()
    )
    bash = b"/bin/bash --noprofile --norc -s"
    if host.environment == "login":
        # What stands in profiles must not read our script: it is put aside until they are through.
        shell = b"exec 3<&0 </dev/null; exec env -i %s /bin/bash -l -c 'exec <&3 3<&-; exec %s'" % (own, bash)
    else:
        shell = b"exec env -i %s %s" % (own, bash)
    return b"printf '\\n%s%s\\n'; %s\n" % (MARK.encode(), NEXT.encode(), shell)
