"""`cantle map`: one command for many values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, amount, at_least
from cantle.cli.machine import conduct, fresh_directory, limit_options, limits_of, machine_options, say, this_machine
from cantle.errors import RequestError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.study import Study
    from cantle.readers.values import Values


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("command_line", metavar="COMMAND", help="what to run; {} stands for the value")
    parser.add_argument("words", metavar="VALUE", nargs="*", help="values on the command line")
    values = parser.add_argument_group("where values come from (one of these, words after COMMAND, or standard input)")
    values.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="A-B[:STEP]",
        help="numbers; 001-100 keeps the width; may be repeated",
    )
    values.add_argument("--lines", type=Path, metavar="FILE", help="a value a line; - is standard input")
    values.add_argument("-0", "--null", action="store_true", help="values end in NUL, as of `find -print0`")
    values.add_argument("--csv", type=Path, metavar="FILE", help="a table whose first row names the fields")
    values.add_argument(
        "--argv", action="store_true", help="COMMAND and VALUEs are one argument list that no shell sees"
    )
    tasks = parser.add_argument_group("each task")
    tasks.add_argument("-c", "--cores-per-task", type=at_least(1), default=1, metavar="N", help="cores (default 1)")
    tasks.add_argument("--gpus-per-task", type=at_least(0), default=0, metavar="N", help="GPUs (default 0)")
    tasks.add_argument(
        "--memory-per-task",
        type=amount("memory_mib"),
        default=0,
        metavar="SIZE",
        help="memory, as in 2GB; a task that uses more is ended",
    )
    tasks.add_argument(
        "-a", "--attempts", type=at_least(1), default=1, metavar="N", help="tries when it fails (default 1)"
    )
    tasks.add_argument(
        "--walltime",
        type=amount("duration_s"),
        default=0,
        metavar="TIME",
        help="end it after this, as in 10min or 1:30:00",
    )
    tasks.add_argument(
        "--estimate", type=amount("duration_s"), default=0, metavar="TIME", help="how long it is expected to take"
    )
    tasks.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="environment; VALUE may hold placeholders"
    )
    parser.add_argument("--name", default="map", help="what to call the step (default map)")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="directory of the run (default: NAME_date-time)")
    parser.add_argument("-y", "--yes", action="store_true", help="replace the run that stands in the output directory")
    parser.add_argument("--pilot", default="", metavar="NAME", help="run in the pilot of that name (see `cantle up`)")
    limit_options(parser)
    machine_options(parser)


def _map(asked: Namespace) -> int:
    words_are_values = bool(asked.words) and not asked.argv
    if sum((bool(asked.range), asked.lines is not None, asked.csv is not None, words_are_values)) > 1:
        raise RequestError("give values in one way: --range, --lines, --csv, or on the command line")
    env: dict[str, str | None] = {}
    for variable in asked.env:
        name, equals, value = variable.partition("=")
        if not equals:
            raise RequestError(f"--env {variable!r} is not NAME=VALUE")
        env[name] = value
    if asked.pilot:
        from cantle.cli.submitting import run_in_pilot

        return run_in_pilot(asked, lambda: (_study(asked, env), "map", ""))
    machine = this_machine(asked)

    from cantle.runtime.conducting import begin

    study = _study(asked, env)
    layout = fresh_directory(asked.out, Path.cwd(), study.name, asked.yes)
    limits = limits_of(study, asked.throttle, asked.rlimit, asked.fail_fast)
    return conduct(begin(study, layout, "map", limits, argv=sys.argv), machine, asked)


def _study(asked: Namespace, env: dict[str, str | None]) -> Study:
    """The study that the command and its values make; its warnings are told."""
    from cantle.model.resources import Needs
    from cantle.readers.map import build

    values, source = _values(asked)
    study = build(
        [asked.command_line, *asked.words] if asked.argv else asked.command_line,
        values,
        name=asked.name,
        needs=Needs(cores=asked.cores_per_task, gpus=asked.gpus_per_task, memory_mib=int(asked.memory_per_task)),
        retries=asked.attempts - 1,
        walltime_s=asked.walltime,
        estimate_s=asked.estimate,
        env=env,
        source=source,
    )
    for warning in study.warnings:
        say(f"cantle: warning: {warning}")
    if not study.tasks:
        say(f"cantle: warning: {source} gave no values, so there is nothing to run")
    return study


def _values(asked: Namespace) -> tuple[Values, str]:
    """The values, and where they came from, in words."""
    from cantle.readers import values

    if asked.range:
        return values.from_ranges(asked.range), "--range"
    if asked.csv is not None:
        return values.from_csv(_content(asked.csv), _named(asked.csv)), _named(asked.csv)
    if asked.words and not asked.argv:
        return values.from_words(asked.words), "the command line"
    file = asked.lines
    if file is None:
        if sys.stdin.isatty():
            raise RequestError("there are no values: give --range, --lines, --csv, words after COMMAND, or a pipe")
        file = Path("-")
    return values.from_lines(_content(file), _named(file), asked.null), _named(file)


def _content(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as problem:
        raise RequestError(f"cannot read {path}: {problem.strerror}") from problem


def _named(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


MAP = Command(
    "map",
    "",
    _arguments,
    _map,
    """\
For those who come from GNU parallel, xargs or a job array. {} is the value, {field} a column of the table, {#} the number
from 1; each arrives exactly as it is, whatever characters it holds. What else stands in braces, or with a $, is left to
the shell. Output is kept in few files: `cantle logs DIR map.17` prints what one task printed.""",
    """\
  cantle map 'sim --seed {}' --range 1-1000
  cantle map 'convert {} {#}.png' --lines files.txt
  cantle map './fit --mass {mass} --charge {charge}' --csv grid.csv
  cantle map 'gzip -k {}' a.txt 'b with blanks.txt'
  find . -name '*.fits' -print0 | cantle map -0 'process {}'
  cantle map --argv --range 1-3 -- sim --seed {}""",
)
