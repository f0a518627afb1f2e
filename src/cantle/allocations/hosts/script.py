"""What is done on a host before its runner begins? A shell script, which the host's shell reads from its standard input.

Over stdin, and not as words of a command, because then it passes through no login shell's quoting, has no bound on its
length, and nobody else on the host can read it in a list of processes. Files and the invitation follow in the same stream. A
shell may read more than the line it needs, so each part is sent when the one before has said `@cantle next`; further lines
that begin with `@cantle` tell how far it is.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cantle.allocations.hosts.host import Host
from cantle.errors import RequestError

NEXT = "@cantle next"
STEP = "@cantle step"
READY = "@cantle ready"
NO_PYTHON = "@cantle no-python"
OLD_PYTHON = "@cantle old-python"
NO_CANTLE = "@cantle no-cantle"
NO_MODULES = "@cantle no-modules"
FAILED = "@cantle failed"
JOINED = "@cantle joined"
"""The runner itself says this one, when its conductor has let it in."""

MOST_BYTES = 64 << 20
"""So much may be copied to a host before its runner begins; it goes to each of them anew."""
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

_VARIABLE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(rb"BASH_FUNC_([A-Za-z_][\w-]*)%%")
_NOT_INHERITED = re.compile(rb"(PWD|OLDPWD|SHLVL|_|HOSTNAME|SSH_\w+|CANTLE_\w+|BASH_ENV|ENV|BASHOPTS|SHELLOPTS)")
"""What of an environment belongs to a shell, or to the machine that it runs on."""
_MODULES = (
    '"${LMOD_PKG:-/nonexistent}/init/bash"',
    '"${MODULESHOME:-/nonexistent}/init/bash"',
    "/etc/profile.d/lmod.sh",
    "/etc/profile.d/modules.sh",
    "/usr/share/lmod/lmod/init/bash",
    "/usr/share/modules/init/bash",
    "/usr/share/Modules/init/bash",
)


def script_for(
    host: Host, command: Sequence[str], python: str, environ: Mapping[bytes, bytes], files: bytes
) -> list[bytes]:
    """The parts of the script that begins the runner `command`, whose first word is the interpreter. Then follow the files.

    `python` is the conductor's interpreter; on a host that names none it is taken if it is there. `environ` is the
    conductor's environment. `files` is the archive of what is copied, b"" for nothing.
    """
    body = [b"cantle_main() {", b"echo '%s'" % NEXT.encode()]
    if host.directory:
        where = _home_first(host.directory)
        body.append(b"mkdir -p %s && cd %s || exit 96" % (where, where))
    if files:
        body.append(b"head -c %d | tar -xf - || exit 96" % len(files))
    if host.environment == "inherit" and host.shapes_environment:
        body += _exports(environ)
    elif not host.python and b"PYTHONPATH" in environ:
        body.append(b"export PYTHONPATH=%s" % _quoted(environ[b"PYTHONPATH"]))
    if host.modules:
        body += _find_modules()
    for number, step in enumerate(host.steps):
        body += [
            b"echo '%s %d'" % (STEP.encode(), number),
            b"eval %s </dev/null || { echo '%s %d' $?; exit 96; }" % (_quoted(step), FAILED.encode(), number),
        ]
    for name, value in host.env.items():
        body.append(b"export %s=%s" % (name.encode(), _quoted(value)))
    body += _choose_python(host, python)
    words = b" ".join([*map(_quoted, host.container), b'"$cantle_python"', *map(_quoted, command[1:])])
    body += [b"echo '%s'" % READY.encode(), b"exec %s" % words, b"}"]
    script = b"\n".join(body) + b"\ncantle_main; exit 1\n"
    return [_chosen_shell(host), script] if host.shapes_environment else [script]


def archive(paths: Sequence[str]) -> bytes:
    """These files and folders under their own names, as an archive. Raises RequestError."""
    if not paths:
        return b""
    import tarfile

    size = 0
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in map(Path, paths):
            try:
                size += sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())
                if size > MOST_BYTES:
                    raise RequestError(
                        f"{path} and what is copied before it are more than {MOST_BYTES >> 20} MiB, which would go to each "
                        "host anew: put it where the hosts see it"
                    )
                tar.add(path, path.name)
            except OSError as error:
                raise RequestError(f"{error.filename or path} cannot be copied to a host: {error.strerror}") from None
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
    return b"echo '%s'; %s\n" % (NEXT.encode(), shell)


def _exports(environ: Mapping[bytes, bytes]) -> list[bytes]:
    """An environment as a shell's commands. What bash exports as a function becomes one again."""
    lines = []
    for name, value in environ.items():
        if _NOT_INHERITED.fullmatch(name):
            continue
        if _VARIABLE.fullmatch(name):
            lines.append(b"export %s=%s" % (name, _quoted(value)))
        elif (function := _FUNCTION.fullmatch(name)) and value.startswith(b"() {"):
            text = b"%s %s" % (function[1], value)
            lines.append(b"eval %s && export -f %s" % (_quoted(text), function[1]))
    return lines


def _find_modules() -> list[bytes]:
    """Where nobody has defined `module`, which only login shells do, look where it is defined."""
    files = " ".join(_MODULES)
    return [
        b"for cantle_file in %s; do" % files.encode(),
        b'type module >/dev/null 2>&1 && break; [ -r "$cantle_file" ] && . "$cantle_file" </dev/null',
        b"done",
        b"type module >/dev/null 2>&1 || { echo '%s'; exit 96; }" % NO_MODULES.encode(),
    ]


def _choose_python(host: Host, python: str) -> list[bytes]:
    """Set `cantle_python`: what the user says, the conductor's interpreter if it is here as well, or one that has Cantle."""
    if host.container:
        return [b"cantle_python=%s" % _quoted(host.python or "python3")]
    old = b"%s '$(\"$cantle_python\" -V 2>&1)'" % OLD_PYTHON.encode()
    recent = b"-c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null"
    lines = []
    if host.python:
        lines += [
            b"cantle_python=$(command -v %s) || { echo '%s'; exit 96; }"
            % (_home_first(host.python), NO_PYTHON.encode()),
            b'"$cantle_python" %s || { echo "%s"; exit 96; }' % (recent, old),
            b"\"$cantle_python\" -c 'import cantle' </dev/null || { echo '%s'; exit 96; }" % NO_CANTLE.encode(),
        ]
    else:
        lines += [
            b"cantle_python=%s" % _quoted(python),
            b'if [ ! -x "$cantle_python" ]; then',
            b"cantle_python=$(command -v python3) || { echo '%s'; exit 96; }" % NO_PYTHON.encode(),
            b"\"$cantle_python\" -c 'import cantle' 2>/dev/null </dev/null || {",
            b'"$cantle_python" %s || { echo "%s"; exit 96; }' % (recent, old),
            b"echo '%s'; exit 96; }" % NO_CANTLE.encode(),
            b"fi",
        ]
    return lines


def _home_first(path: str) -> bytes:
    """The path, quoted; a leading ~ is the home on the host."""
    return b'"$HOME"%s' % _quoted(path[1:]) if path == "~" or path.startswith("~/") else _quoted(path)


def _quoted(text: str | bytes) -> bytes:
    data = os.fsencode(text)
    return b"'%s'" % data.replace(b"'", b"'\\''")
