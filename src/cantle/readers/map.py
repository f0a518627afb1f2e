"""How does one command with many values become a study?

This is what `cantle map` stands on: one step, one task a value, so that everything that holds for studies (retries, resume,
status, limits) holds for it. The values are kept once; a task's command is put together when it is launched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cantle.errors import RequestError
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import Command, Step, Study, Task

from .base import ReadOptions
from .templates import NUMBER, Word, check_text, mentions, strangers_in, words
from .values import Values

_SPEC = "map.json"
_CELLS = "map.values"
_LONGEST_PARAM = 100
_WHOLE_ROW = -2


class MapSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of a map but its values, as it is kept in the run's directory.

    `directory` is where the user stood and where tasks run. `shell` runs commands that need one. `env` may hold
    placeholders; None removes a variable.
    """

    format: int = 1
    command: str | list[str]
    fields: tuple[str, ...]
    directory: str
    shell: str
    step: Step
    estimate_s: float = 0.0
    env: dict[str, str | None] = {}
    source: str = ""


def build(
    template: str | Sequence[str],
    values: Values,
    *,
    name: str = "map",
    directory: str = "",
    shell: str = "",
    needs: Needs | None = None,
    retries: int = 0,
    walltime_s: float = 0.0,
    estimate_s: float = 0.0,
    env: Mapping[str, str | None] | None = None,
    source: str = "command line",
) -> Study:
    """A study with one task for each value: `NAME.1`, `NAME.2`, …

    `template` is text, run by `shell` if it needs a shell ("" takes /bin/bash, where that is missing /bin/sh), or a list of
    arguments, run as they stand; see `cantle.readers.templates` for its placeholders. One without any gets the value as
    its last argument. `directory` is where tasks run, "" where the caller stands. Times are seconds.

    Raises RequestError when the command cannot be used: empty, an open quote, `{}` with a table of several columns.
    """
    import os

    if isinstance(template, str):
        check_text(template, "the command")
    else:
        template = [check_text(argument, f"argument {n} of the command") for n, argument in enumerate(template)]
    if not (template.strip() if isinstance(template, str) else template and template[0]):
        raise RequestError("there is no command to map\n    Give one, as in: cantle map 'sim --seed {}' --range 1-100")
    if not name or not name.isprintable() or "/" in name or " " in name:
        raise RequestError(f"{name!r} cannot be a step's name\n    Choose letters, digits, dots and dashes, say.")
    for variable, value in (env or {}).items():
        if not variable or "=" in variable:
            raise RequestError(f"{variable!r} cannot be the name of an environment variable")
        check_text(variable + (value or ""), f"the environment variable {variable}")
    spec = MapSpec(
        command=template if isinstance(template, str) else list(template),
        fields=values.fields,
        directory=check_text(str(Path(directory or Path.cwd()).absolute()), "the name of the current directory"),
        shell=shell or ("/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"),
        step=Step(name, needs or Needs(), retries=retries, walltime_s=float(walltime_s)),
        estimate_s=float(estimate_s),  # a whole number would be kept as one, and read again as another text
        env=dict(env or {}),
        source=source,
    )
    return _study(spec, values)


def _listed(template: str | list[str]) -> list[str]:
    return [template] if isinstance(template, str) else template


class MapReader:
    """Reads maps again that a run has kept. New ones come from `build`."""

    name = "map"

    def recognises(self, path: Path) -> bool:
        """Whether this is the file that describes a map in a run's directory."""
        return path.name == _SPEC

    def read(self, path: Path, options: ReadOptions) -> Study:  # noqa: ARG002 - a map was said in full when it was built
        """The map that the file and its neighbour, the values, describe."""
        return self.reopen(path.parent)

    def reopen(self, folder: Path) -> Study:
        """Make the same study again. Raises RequestError when what was kept is damaged or of a newer Cantle."""
        try:
            spec = msgspec.json.decode((folder / _SPEC).read_bytes(), type=MapSpec)
            kept = (folder / _CELLS).read_bytes().decode()
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as slip:
            raise RequestError(f"the map kept in {folder} cannot be read: {slip}") from slip
        if spec.format != 1:
            raise RequestError(
                f"the map kept in {folder} has format {spec.format}: a newer Cantle wrote it; use that one"
            )
        cells = kept.split("\0")[:-1]
        if len(cells) % len(spec.fields):
            raise RequestError(f"the map kept in {folder} cannot be read: {_CELLS} ends in the middle of a row")
        return _study(spec, Values(cells, spec.fields))


def _study(spec: MapSpec, values: Values) -> Study:
    import hashlib

    commands = MapCommands(spec, values.cells)
    keep = {
        _SPEC: msgspec.json.format(msgspec.json.encode(spec)),
        _CELLS: "".join(f"{cell}\0" for cell in values.cells).encode(),
    }
    digest = hashlib.sha256(b"\0".join((keep[_SPEC], keep[_CELLS]))).hexdigest()
    return Study(
        name=spec.step.name,
        steps=[spec.step],
        tasks=_tasks(spec, values),
        work=lambda _directory: commands,
        keep=keep,
        digest=digest,
        description=commands.description,
        source=spec.source,
        warnings=[*values.warnings, *commands.warnings],
    )


def _tasks(spec: MapSpec, values: Values) -> list[Task]:
    name, estimate = spec.step.name, spec.estimate_s
    cells, width = values.cells, len(values.fields)
    if width == 1:
        label = values.fields[0] or "value"
        params = [f"{label}:{_shown(cell)}" for cell in cells]
    else:
        rows = zip(*(cells[column::width] for column in range(width)), strict=True)
        params = [
            ";".join([f"{field}:{_shown(cell)}" for field, cell in zip(values.fields, row, strict=True)])
            for row in rows
        ]
    return [Task(f"{name}.{n}", 0, (), estimate, (), "", text) for n, text in enumerate(params, 1)]


def _shown(cell: str) -> str:
    """The cell as tables show it: on one line, and not too long."""
    if len(cell) > _LONGEST_PARAM:
        cell = f"{cell[: _LONGEST_PARAM - 1]}…"
    return cell if cell.isprintable() else repr(cell)[1:-1]


class MapCommands:
    """The work half of a map."""

    def __init__(self, spec: MapSpec, cells: list[str]) -> None:
        self.warnings: list[str] = []
        self.description = spec.command if isinstance(spec.command, str) else _quoted(spec.command)
        self._cells = cells
        self._width = len(spec.fields)
        self._directory = spec.directory
        slots = {field: column for column, field in enumerate(spec.fields)}
        if self._width == 1:
            slots[""] = 0
        self._words = self._command_words(spec, slots)
        # a value of the environment is a text without a shell, as an argument of a list is
        self._env = {name: None if v is None else words([v], slots, spec.shell)[0] for name, v in spec.env.items()}

    def prepare(self, directory: str) -> None:
        """Nothing to fetch."""

    def command(
        self, task: int, attempt: int, restart: bool, places: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        """What the task runs: the same in each attempt and place."""
        del attempt, restart, places, nodes
        row = self._cells[task * self._width : (task + 1) * self._width]
        number = str(task + 1)
        return Command(
            argv=tuple([_filled(word, row, number) for word in self._words]),
            cwd=self._directory,
            env={name: None if word is None else _filled(word, row, number) for name, word in self._env.items()},
            packed=True,
        )

    def _command_words(self, spec: MapSpec, slots: dict[str, int]) -> list[Word]:
        """The command's words; where no placeholder, not even in the environment, says where the value goes, it goes last."""
        template = spec.command
        fields = ", ".join(f"{{{field}}}" for field in spec.fields)
        names = slots if self._width == 1 else {**slots, "": _WHOLE_ROW}
        environment = [value for value in spec.env.values() if value]
        if not mentions(template, names) and not mentions(environment, names):
            if self._width > 1:
                raise RequestError(f"the command uses none of the table's fields\n    They are {fields}")
            template = f"{template.rstrip()} {{}}" if isinstance(template, str) else [*template, "{}"]
            self.warnings.append("the command has no {}: each value is appended to it as the last argument")
        elif self._width > 1 and (strange := strangers_in([*_listed(template), *environment], names)):
            what = "is no field" if len(strange) == 1 else "are no fields"
            self.warnings.append(
                f"{', '.join(strange)} {what} of the table, which has {fields}: it is left to the shell"
            )
        found = words(template, names, spec.shell)
        if any(_WHOLE_ROW in word for word in found):
            raise RequestError(
                f"{{}} is one value, but the table has {self._width} fields\n"
                f"    Say which: {fields}. Where braces are meant as text, double them: {{{{}}}}"
            )
        return found


def _filled(word: Word, row: list[str], number: str) -> str:
    if len(word) == 1:  # a text, or a value alone, as most are
        [part] = word
        return part if isinstance(part, str) else number if part == NUMBER else row[part]
    return "".join([part if isinstance(part, str) else number if part == NUMBER else row[part] for part in word])


def _quoted(arguments: list[str]) -> str:
    import shlex

    return shlex.join(arguments)
