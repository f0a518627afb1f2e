"""What would be run? All scripts of a study, written where they would be run from, and nothing started."""

from __future__ import annotations

from cantle.errors import MachineError
from cantle.model.study import Study
from cantle.store.layout import Layout


def write_scripts(study: Study, layout: Layout) -> int:
    """Write the scripts of all tasks into the layout's directory; how many. Raises MachineError when that fails."""
    directory = layout.directory
    work = study.work(str(directory))
    written = 0
    try:
        layout.own.mkdir(parents=True, exist_ok=True)  # by which a later run knows that it may replace all this
        for number, task in enumerate(study.tasks):
            forms = (False, True) if study.steps[task.step].restartable else (False,)
            for restart in forms:
                command = work.command(number, 1, restart, (), ())
                if command.cwd:
                    (directory / command.cwd).mkdir(parents=True, exist_ok=True)
                if command.script_path:
                    path = directory / command.script_path
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(command.script, encoding="utf-8", errors="surrogateescape")
                    path.chmod(0o755)
                    written += 1
    except OSError as error:
        raise MachineError(f"cannot write {error.filename or directory}: {error.strerror}") from error
    return written
