"""How do small files come to a node with an attempt, and go back with its end, where nobody else would see them?"""

# Paths stay text, as everywhere in the runner.
# ruff: noqa: PTH103, PTH105, PTH113, PTH118, PTH120, PTH207

from __future__ import annotations

import os
from glob import glob
from typing import TYPE_CHECKING

from .messages import Start

if TYPE_CHECKING:
    from .spawn import Output

MOST_BYTES = 16 << 20
"""So much is staged for an attempt, each way: it goes in one message beside all others."""
MOST_PRINTED = 1 << 20
"""So much of what it printed is brought back, of each stream the end."""

Files = tuple[tuple[str, int, bytes], ...]


def put(directory: str, files: Files) -> None:
    """Write the files. Raises OSError."""
    for name, mode, content in files:
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.{os.getpid()}.staged"
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(fd, "wb") as file:
            file.write(content)
        os.replace(beside, path)


def fetch(directory: str, start: Start, output: Output, done: bool) -> tuple[Files, str]:
    """What goes back, and what is wrong with it, "" when nothing. Of one that is not `done`, what it printed."""
    assert start.stage is not None
    lack = ""
    names: list[str] = []
    if done:
        for pattern in start.stage.out:
            found = sorted(glob(os.path.join(directory, start.command.cwd, pattern), recursive=True))
            names += [path for path in found if os.path.isfile(path)]
            if not found:
                lack = lack or f"it was to leave {pattern} (`stage: out`), and there is no such file"
    if not start.stage.back:
        return (), lack
    try:
        files = [_whole(directory, path) for path in dict.fromkeys(names)]
        size = sum(len(content) for _, _, content in files)
        if size > MOST_BYTES:
            lack = f"it leaves {size / 2**20:.1f} MiB (`stage: out`); at most {MOST_BYTES >> 20} MiB are brought back"
            files = []
        printed = [path for path in (output.out, output.err) if path]
        if start.command.script_path:
            printed.append(os.path.join(directory, start.command.script_path))
        files += [_end_of(directory, path) for path in printed if os.path.isfile(path)]
    except OSError as error:
        return (), f"{error.filename} cannot be brought back: {error.strerror}"
    return tuple(files), lack


def what_stays(directory: str, start: Start) -> tuple[int, str]:
    """How large the local files are that no other machine sees, at least 1 each, and what is wrong with any of them."""
    assert start.stage is not None
    kept = 0
    for name in start.stage.local:
        try:
            size = os.stat(os.path.join(directory, start.command.cwd, name)).st_size  # noqa: PTH116
        except OSError:
            return 0, f"it was to leave {name} (`local`), and there is no such file"
        if start.stage.back or name.startswith("/"):
            kept += max(1, size)
    return kept, ""


def _whole(directory: str, path: str) -> tuple[str, int, bytes]:
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        return os.path.relpath(path, directory), mode, file.read(MOST_BYTES + 1)


def _end_of(directory: str, path: str) -> tuple[str, int, bytes]:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - MOST_PRINTED))
        return os.path.relpath(path, directory), status.st_mode & 0o777, file.read(MOST_PRINTED)
