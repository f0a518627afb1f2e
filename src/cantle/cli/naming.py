"""How do commands take a run's directory and the names of its tasks, and what does the shell complete them to?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MOST_COMPLETIONS = 500


DIRECTORY = click.Path(file_okay=False, path_type=Path)
"""A run's directory. Whether there is a run is told by the command itself; the shell completes directories."""


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of tasks that begin so, from the run whose directory stands before them on the line."""
    from click.shell_completion import CompletionItem

    from cantle.errors import CantleError

    del param
    said = ctx.params.get("directory")
    if said is None:
        return []
    found = []
    try:
        for name, params in _names(Path(said)):
            if name.startswith(incomplete):
                found.append(CompletionItem(name, help=params or None))
                if len(found) == _MOST_COMPLETIONS:
                    break
    except CantleError:
        return []
    return found


def _names(directory: Path) -> list[tuple[str, str]]:
    """The run's tasks and their parameters. They stand at the journal's beginning, so little of it is read."""
    from cantle.model.records import TasksAdded
    from cantle.store.journal import read
    from cantle.store.layout import Layout

    found: list[tuple[str, str]] = []
    for record in read(Layout(directory).require().journal):
        if type(record) is TasksAdded:
            found += [(task.name, task.params) for task in record.tasks]
        elif found:
            break
    return found
