"""How do commands take a run's directory and the names of its tasks, and what does the shell complete them to?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_MOST_COMPLETIONS = 500


def directory_argument(parser: ArgumentParser) -> None:
    """The one run that a command is about."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the run's directory")


def task_argument(parser: ArgumentParser, help: str, **more: Any) -> None:
    """A task, or several with `nargs`; the shell completes their names from the run that stands before them."""
    action = parser.add_argument("task", metavar="TASK", help=help, **more)
    action.completer = complete_task  # type: ignore[attr-defined] # that is where argcomplete looks


def complete_task(prefix: str, parsed_args: Namespace, **_: Any) -> dict[str, str]:
    """Names of tasks that begin so, each with its parameters, from the run that was named before."""
    from cantle.errors import CantleError

    found: dict[str, str] = {}
    if getattr(parsed_args, "directory", None) is None:
        return found
    try:
        for name, params in _names(Path(parsed_args.directory)):
            if name.startswith(prefix):
                found[name] = params
                if len(found) == _MOST_COMPLETIONS:
                    break
    except CantleError:
        return found
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
