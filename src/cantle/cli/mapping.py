"""`cantle map`: one command for many values."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cantle.cli.machine import conduct, fresh_directory, limit_options, limits_of, machine_options, say, this_machine


@click.command(
    context_settings={"ignore_unknown_options": False},
    epilog="""\b
Examples:
  cantle map 'sim --seed {}' --range 1-1000
  cantle map 'convert {} {#}.png' --lines files.txt
  cantle map './fit --mass {mass} --charge {charge}' --csv grid.csv
  cantle map 'gzip -k {}' a.txt 'b with blanks.txt'
  find . -name '*.fits' | cantle map 'process {}'
  cantle map --argv --range 1-3 -- sim --seed {}

\b
{} is the value, {field} a column of the table, {#} the number from 1; each arrives exactly as it is, whatever characters
it holds. What else stands in braces, or with a $, is left to the shell. Output is kept in few files:
`cantle logs DIR map.17` prints what one task printed.""",
)
@click.argument("command_line", metavar="COMMAND", nargs=1)
@click.argument("words", metavar="[VALUE]...", nargs=-1)
@click.option("--range", "ranges", multiple=True, metavar="A-B[:STEP]", help="Numbers; 001-100 keeps the width.")
@click.option(
    "--lines",
    "lines",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A value a line; - is stdin.",
)
@click.option("--null", "-0", "null", is_flag=True, help="Values of --lines or stdin end in NUL, as of `find -print0`.")
@click.option(
    "--csv",
    "table",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A table whose first row names the fields.",
)
@click.option(
    "--argv",
    "as_list",
    is_flag=True,
    help="COMMAND and VALUEs are one argument list that no shell sees; values come from --range, --lines or --csv.",
)
@click.option("--name", default="map", help="What to call the step (default map).")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Directory of the run (default: NAME_date-time).")
@click.option("-y", "--yes", is_flag=True, help="Replace the run that stands in the output directory.")
@click.option(
    "-c", "--cores-per-task", type=click.IntRange(min=1), default=1, metavar="N", help="Cores of each task (default 1)."
)
@click.option(
    "--gpus-per-task", type=click.IntRange(min=0), default=0, metavar="N", help="GPUs of each task (default 0)."
)
@click.option("--memory-per-task", metavar="SIZE", help="Memory of each task, as in 2 GB; one that uses more is ended.")
@click.option(
    "-a", "--attempts", type=click.IntRange(min=1), default=1, metavar="N", help="Tries of a failing task (default 1)."
)
@click.option("--walltime", metavar="TIME", help="End a task after this, as in 10 min or 1:30:00.")
@click.option("--estimate", metavar="TIME", help="How long a task is expected to take.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment of the tasks; VALUE may hold placeholders.",
)
@limit_options
@machine_options
def map(
    command_line: str,
    words: tuple[str, ...],
    ranges: tuple[str, ...],
    lines: Path | None,
    null: bool,
    table: Path | None,
    as_list: bool,
    name: str,
    out: Path | None,
    yes: bool,
    cores_per_task: int,
    gpus_per_task: int,
    memory_per_task: str | None,
    attempts: int,
    walltime: str | None,
    estimate: str | None,
    variables: tuple[str, ...],
    throttle: int | None,
    rlimit: int | None,
    fail_fast: bool,
    cores: int | None,
    gpus: int | None,
    memory: str | None,
    packer: str,
    grace: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run COMMAND once for each value, in parallel: for those who come from GNU parallel, xargs or a job array."""
    sources = [bool(ranges), lines is not None, table is not None, bool(words) and not as_list]
    if sum(sources) > 1:
        raise click.UsageError("give values in one way: --range, --lines, --csv, or on the command line")
    machine = this_machine(cores, gpus, memory, grace)

    from cantle.model.resources import Needs
    from cantle.readers import values as sources_of
    from cantle.readers.map import build
    from cantle.readers.quantities import duration_s, memory_mib
    from cantle.runtime.conducting import begin

    def amount(option: str, text: str | None, parse: object) -> float:
        if text is None:
            return 0
        try:
            return parse(text)  # type: ignore[operator, no-any-return]
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint=option) from problem

    if ranges:
        values = sources_of.from_ranges(ranges)
        source = "--range"
    elif table is not None:
        values = sources_of.from_csv(_content(table), _named(table))
        source = _named(table)
    elif words and not as_list:
        values = sources_of.from_words(words)
        source = "the command line"
    elif lines is not None or not sys.stdin.isatty():
        values = sources_of.from_lines(_content(lines or Path("-")), _named(lines or Path("-")), null)
        source = _named(lines or Path("-"))
    else:
        raise click.UsageError(
            "there are no values: give --range, --lines, --csv, values on the line, or a pipe on stdin"
        )
    env: dict[str, str | None] = {}
    for variable in variables:
        key, equals, value = variable.partition("=")
        if not equals:
            raise click.BadParameter(f"{variable!r} is not NAME=VALUE", param_hint="--env")
        env[key] = value
    study = build(
        [command_line, *words] if as_list else command_line,
        values,
        name=name,
        needs=Needs(
            cores=cores_per_task,
            gpus=gpus_per_task,
            memory_mib=int(amount("--memory-per-task", memory_per_task, memory_mib)),
        ),
        retries=attempts - 1,
        walltime_s=amount("--walltime", walltime, duration_s),
        estimate_s=amount("--estimate", estimate, duration_s),
        env=env,
        source=source,
    )
    for warning in study.warnings:
        say(f"cantle: warning: {warning}")
    layout = fresh_directory(out, Path.cwd(), study.name, yes)
    conductor = begin(study, layout, "map", limits_of(study, throttle, rlimit, fail_fast))
    return conduct(conductor, machine, packer=packer, quiet=quiet, as_json=as_json)


def _content(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as problem:
        from cantle.errors import RequestError

        raise RequestError(f"cannot read {path}: {problem.strerror}") from problem


def _named(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)
