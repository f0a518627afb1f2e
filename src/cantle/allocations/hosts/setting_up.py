"""What must be so in a shell before Cantle begins there? Its environment, modules, sourced files, commands, an interpreter.

What the shell has to say meanwhile it says by `cantle_tell`, which whoever uses these lines defines. A step that fails ends
the shell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from cantle.allocations.hosts.host import Host

FAILED, NO_PYTHON, OLD_PYTHON, NO_CANTLE, NO_MODULES = "failed", "no-python", "old-python", "no-cantle", "no-modules"
"""What `cantle_tell` may be called with; `failed` is followed by the step's number and its status, `old-python` by words."""
STEP = "step"

PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

_VARIABLE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(rb"BASH_FUNC_([A-Za-z_][\w-]*)%%")
_NOT_INHERITED = re.compile(rb"(PWD|OLDPWD|SHLVL|_|HOSTNAME|SSH_\w+|CANTLE_\w+|BASH_ENV|ENV|BASHOPTS|SHELLOPTS)")
"""What of an environment belongs to a shell, or to the machine that it runs on."""
MODULES = (
    '"${LMOD_PKG:-/nonexistent}/init/bash"',
    '"${MODULESHOME:-/nonexistent}/init/bash"',
    "/etc/profile.d/lmod.sh",
    "/etc/profile.d/modules.sh",
    "/usr/share/lmod/lmod/init/bash",
    "/usr/share/modules/init/bash",
    "/usr/share/Modules/init/bash",
)
"""Where `module` is defined, as words for a shell."""


def set_up(host: Host, environ: Mapping[bytes, bytes], python: str) -> list[bytes]:
    """The lines. They set `cantle_python`. `environ` and `python` are those of the conductor."""
    lines = []
    if host.environment == "inherit" and host.shapes_environment:
        lines += _exports(environ)
    elif not host.python and b"PYTHONPATH" in environ:
        lines.append(b"export PYTHONPATH=%s" % quoted(environ[b"PYTHONPATH"]))
    if host.modules:
        lines += _find_modules()
    for number, step in enumerate(host.steps):
        lines += [
            b"cantle_tell %s %d" % (STEP.encode(), number),
            b"eval %s </dev/null || { cantle_tell %s %d $?; exit 96; }" % (quoted(step), FAILED.encode(), number),
        ]
    for name, value in host.env.items():
        lines.append(b"export %s=%s" % (name.encode(), quoted(value)))
    return lines + _choose_python(host, python)


def _exports(environ: Mapping[bytes, bytes]) -> list[bytes]:
    """An environment as a shell's commands. What bash exports as a function becomes one again."""
    lines = []
    for name, value in environ.items():
        if _NOT_INHERITED.fullmatch(name):
            continue
        if _VARIABLE.fullmatch(name):
            lines.append(b"export %s=%s" % (name, quoted(value)))
        elif (function := _FUNCTION.fullmatch(name)) and value.startswith(b"() {"):
            text = b"%s %s" % (function[1], value)
            lines.append(b"eval %s && export -f %s" % (quoted(text), function[1]))
    return lines


def _find_modules() -> list[bytes]:
    """Where nobody has defined `module`, which only login shells do, look where it is defined."""
    files = " ".join(MODULES)
    return [
        b"for cantle_file in %s; do" % files.encode(),
        b'type module >/dev/null 2>&1 && break; [ -r "$cantle_file" ] && . "$cantle_file" </dev/null',
        b"done",
        b"type module >/dev/null 2>&1 || { cantle_tell %s; exit 96; }" % NO_MODULES.encode(),
    ]


def _choose_python(host: Host, python: str) -> list[bytes]:
    """Set `cantle_python`: what the user says, the conductor's interpreter if it is here as well, or one that has Cantle."""
    if host.container:
        return [b"cantle_python=%s" % quoted(host.python or "python3")]
    old = b'{ cantle_tell %s "$("$cantle_python" -V 2>&1)"; exit 96; }' % OLD_PYTHON.encode()
    recent = b"-c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null"
    none, lacking = (b"{ cantle_tell %s; exit 96; }" % what.encode() for what in (NO_PYTHON, NO_CANTLE))
    if host.python:
        return [
            b"cantle_python=$(command -v %s) || %s" % (in_home(host.python), none),
            b'"$cantle_python" %s || %s' % (recent, old),
            b"\"$cantle_python\" -c 'import cantle' </dev/null || %s" % lacking,
        ]
    return [
        b"cantle_python=%s" % quoted(python),
        b'if [ ! -x "$cantle_python" ]; then',
        b"cantle_python=$(command -v python3) || %s" % none,
        b"\"$cantle_python\" -c 'import cantle' 2>/dev/null </dev/null || {",
        b'"$cantle_python" %s || %s' % (recent, old),
        b"%s; }" % lacking,
        b"fi",
    ]


def in_home(path: str) -> bytes:
    """The path, quoted for a shell; a leading ~ is the home on the host."""
    return b'"$HOME"%s' % quoted(path[1:]) if path == "~" or path.startswith("~/") else quoted(path)


def quoted(text: str | bytes) -> bytes:
    """The text as one word for a shell."""
    data = os.fsencode(text)
    return b"'%s'" % data.replace(b"'", b"'\\''")
