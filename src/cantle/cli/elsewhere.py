"""`cantle run -r HOST`: how is a whole run done over there? The study and what it names are copied, and run by Cantle there.

Words after `-j`, and `hosts.yml`, are then what they are for that host. Paths stay as they are written: the files lie there as
they lie here, relative to the working directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.machine import say, stamp

if TYPE_CHECKING:
    from argparse import Namespace

    from cantle.allocations.hosts.host import Host

SSH = ("ssh",)
_SSH_FAILED = 255


def run_there(asked: Namespace, words: Sequence[str]) -> int:
    """Run it on the host `asked.remote`; `words` are those of the command line after the program. The exit status there.

    Raises RequestError when that is no host, MachineError when it cannot be reached or written on.
    """
    from cantle.allocations.hosts import errand
    from cantle.allocations.hosts.script import archive_of
    from cantle.errors import MachineError
    from cantle.model.resources import count
    from cantle.readers.named_files import named_files

    host = _host(asked)
    files = [path.absolute() for path in (asked.study_file, *_files_of(asked))] + named_files(asked.study_file)
    here = Path.cwd()
    top = Path(os.path.commonpath([here, *(path.parent for path in files)]))
    inside = here.relative_to(top)
    # Tasks begin with an environment of over there; of ours only what finds this very Cantle, if it is there as well.
    environ = {name: value for name, value in os.environb.items() if name == b"PYTHONPATH"}
    begin = errand.beginning(host, str(inside), arguments(words, here), environ, sys.executable)
    named: list[tuple[Path | bytes | None, str]] = [(begin, errand.BEGIN), (None, str(inside))]
    named += [(path, str(path.relative_to(top))) for path in dict.fromkeys(files)]
    folder = errand.put(host, f"{asked.study_file.stem}_{stamp()}-{os.getpid()}", archive_of(named), SSH)
    say(f"cantle: {count(len(named) - 2, 'file')} copied to {host.name}; running there in {folder}")
    status = errand.run(host, folder, SSH)
    if status == _SSH_FAILED:
        raise MachineError(
            f"the connection to {host.name} broke. The run there is stopped and can be resumed in {folder}"
        )
    say(f"cantle: what came of it lies on {host.name} in {folder}")
    return status


def _host(asked: Namespace) -> Host:
    from msgspec.structs import replace

    from cantle.allocations.hosts.words import places_of
    from cantle.cli.command import wrong
    from cantle.cli.places import host_named

    named = places_of([asked.remote]).hosts
    if len(named) != 1 or named[0].cores:
        raise wrong(f"-r {asked.remote}: name one host, without a number of cores; -j says what of it is used")
    host = host_named(asked, named[0])
    return host if host.address else replace(host, address="localhost")


def _files_of(asked: Namespace) -> list[Path]:
    """Files that options name."""
    files = [asked.pgen, Path(asked.slices) if asked.slices else None]
    return [file for file in files if file is not None and file.is_file()]


def arguments(words: Sequence[str], here: Path) -> list[str]:
    """The command line for over there: without what leads there, and with paths that are valid there."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if word in ("--remote", "--hosts"):
            next(left, "")
        elif word == "-r":  # Maestro's number of restarts goes along
            value = next(left, "")
            kept += [word, value] if value.isdigit() else []
        elif word.startswith("-r") and not word[2:].isdigit():
            pass
        elif not word.startswith(("--remote=", "--hosts=")):
            kept.append(_there(word, here))
    return kept


def _there(word: str, here: Path) -> str:
    """An absolute path of a file that was copied, as it is found from the working directory."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if value.startswith("/") and Path(value).is_file():
        return f"{option}{equals}{os.path.relpath(value, here)}"
    return word
