"""Which files go to a node with an attempt, and where do those belong that come back?"""

# Paths with wildcards are text.
# ruff: noqa: PTH207

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from glob import glob
from pathlib import Path

from cantle.engines.unseen import await_sight
from cantle.model.study import Command, Stage
from cantle.runner.messages import Staged
from cantle.runner.staging import MOST_BYTES, Files, put


def staged(stage: Stage, directory: str, apart: bool) -> Staged:
    """What goes with it. A node that sees the run's directory needs no copy of what lies in it.

    Raises OSError when a file cannot be read, ValueError when there is none, or too much of it.
    """
    steps = reading(stage, directory, apart)
    while True:
        try:
            next(steps)
        except StopIteration as over:
            found: Staged = over.value
            return found


def reading(stage: Stage, directory: str, apart: bool) -> Generator[str, None, Staged]:
    """As `staged`, step by step: before each one it says which file, or pattern, it is about to look at."""
    files: dict[str, tuple[str, int, bytes]] = {}
    size = 0
    for source, name in stage.files:
        paths = [source]
        if any(letter in source for letter in "*?["):
            yield source
            await_sight(Path(_before_wildcards(source)), directory, partial(_matches, source))
            paths = sorted(glob(source, recursive=True))
        if not paths:
            raise ValueError(f"there is no {source}")
        for path in map(Path, paths):
            there = f"{name}{path.name}" if name.endswith("/") else name
            yield str(path)
            await_sight(path, directory, path.exists)
            if path.is_dir():
                raise ValueError(f"{path} is a folder; name files, as in {path.name}/*")
            if path == Path(directory, there) and not apart:
                continue
            size += path.stat().st_size
            if size > MOST_BYTES:
                raise ValueError(
                    f"{path} and what comes before it are more than {MOST_BYTES >> 20} MiB: use a shared file system"
                )
            if there in files:
                raise ValueError(f"two files would be {there}")
            files[there] = (there, path.stat().st_mode & 0o777, path.read_bytes())
    return Staged(tuple(files.values()), stage.out, apart, stage.local)


def _matches(pattern: str) -> bool:
    return bool(glob(pattern, recursive=True))


def _before_wildcards(pattern: str) -> str:
    """The folder in which the first wildcard is looked for, with a name below it."""
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if any(letter in part for letter in "*?["))
    return "/".join(parts[: first + 1])


def paths_alone(command: Command, directory: str, apart: bool) -> list[str]:
    """The command's local files that no other machine sees: all on a node apart, else those outside of the run's directory."""
    names = command.stage.local if command.stage is not None else ()
    return [str(Path(directory, command.cwd, name)) for name in names if apart or name.startswith("/")]


def take_in(directory: str, files: Files) -> None:
    """Put what has come back into the run's directory. Raises OSError, and ValueError for what would lie outside of it."""
    for name, _, _ in files:
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{name} lies outside of the run's directory")
    put(directory, files)
