"""`cantle validate`, `simulate`: what can be known of a study before anything of it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cantle.cli.machine import limit_options, limits_of

if TYPE_CHECKING:
    from cantle.model.study import Study

F = TypeVar("F", bound=Callable[..., Any])

STUDY = click.Path(path_type=Path, allow_dash=False)


def reading_options(command: F) -> F:
    """The options that say how a study's file is to be read."""
    for option in reversed(
        (
            click.option("-p", "--pgen", type=click.Path(path_type=Path), help="Parameter generator: a Python file."),
            click.option("--pargs", multiple=True, metavar="KEY:VALUE", help="Argument for it; may be repeated."),
            click.option(
                "--reader", default="", metavar="NAME", help="How to read it: maestro, wfformat, map or module:class."
            ),
            click.option("--launcher", default="", metavar="NAME", help="MPI flavour for $(LAUNCHER)."),
        )
    ):
        command = option(command)
    return command


def _read(file: Path, pgen: Path | None, pargs: tuple[str, ...], reader: str, launcher: str, **more: Any) -> Study:
    from cantle.plugins import reader_for
    from cantle.readers.base import ReadOptions

    options = ReadOptions(pgen=str(pgen.absolute()) if pgen else "", pargs=pargs, launcher=launcher, dry=True, **more)
    study: Study = reader_for(file, reader).read(file, options)
    return study


@click.command(
    epilog="""\b
Examples:
  cantle validate study.yaml
  cantle validate specs/*.yaml
  cantle validate study.yaml --pgen generator.py --pargs SIZE:10
  cantle validate study.yaml --json | jq .problems

\b
Exit status: 0 when all files are good, 1 otherwise.""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=STUDY)
@reading_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each file, on one line.")
def validate(
    files: tuple[Path, ...],
    pgen: Path | None,
    pargs: tuple[str, ...],
    reader: str,
    launcher: str,
    as_json: bool,
) -> int:
    """Check studies and report every problem at once, each with its file, line, key and mend. Runs nothing."""
    from cantle.errors import CantleError, Problem, StudyError

    code = 0
    for file in files:
        problems: list[Problem] = []
        study = None
        try:
            study = _read(file, pgen, pargs, reader, launcher)
        except StudyError as wrong:
            problems = wrong.problems
        except CantleError as wrong:
            problems = [Problem(str(file), 0, "", str(wrong))]
        code = 1 if problems else code
        if as_json:
            import msgspec

            click.echo(msgspec.json.encode(_as_object(file, study, problems)))
        elif study is not None:
            _tell(file, study)
        else:
            for problem in problems:
                print(problem, file=sys.stderr)
            print(f"{file}: {len(problems)} problem{'s' * (len(problems) != 1)}", file=sys.stderr)
    return code


def _tell(file: Path, study: Study) -> None:
    from cantle.model.resources import count

    parameters = _parameters(study)
    edges = _edges(study)
    text = f"{file}: good: {study.name}: {count(len(study.tasks), 'task')} of {count(len(_steps(study)), 'step')}"
    if parameters:
        text += f", {count(len(parameters), 'parameter')} ({', '.join(parameters)})"
    click.echo(f"{text}, {count(edges, 'edge')}")
    rows = [(name, count(tasks, "task"), needs) for name, (tasks, needs) in _steps(study).items()]
    if rows:
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for name, tasks, needs in rows:
            click.echo(f"  {name:<{widths[0]}}  {tasks:>{widths[1]}}  {needs}")
    for warning in study.warnings:
        click.echo(f"  warning: {warning}")


def _as_object(file: Path, study: Study | None, problems: list[Any]) -> dict[str, object]:
    found: dict[str, object] = {
        "file": str(file),
        "good": study is not None,
        "problems": [problem._asdict() for problem in problems],
    }
    if study is not None:
        found |= {
            "study": study.name,
            "steps": [{"name": name, "tasks": tasks, "needs": needs} for name, (tasks, needs) in _steps(study).items()],
            "parameters": _parameters(study),
            "tasks": len(study.tasks),
            "edges": _edges(study),
            "warnings": study.warnings,
        }
    return found


def _steps(study: Study) -> dict[str, tuple[int, str]]:
    """For each step's name, how many tasks it has and what each of them needs."""
    counts = [0] * len(study.steps)
    for task in study.tasks:
        counts[task.step] += 1
    found: dict[str, tuple[int, str]] = {}
    for step, n in zip(study.steps, counts, strict=True):
        before = found.get(step.name)
        needs = str(step.needs)
        if before is None:
            found[step.name] = (n, needs)
        else:
            needs = before[1] if needs in before[1].split(" or ") else f"{before[1]} or {needs}"
            found[step.name] = (before[0] + n, needs)
    return found


def _parameters(study: Study) -> list[str]:
    """The names of what varies, in the order in which tasks name them."""
    names: dict[str, None] = {}
    for task in study.tasks:
        for part in task.params.split(";") if task.params else ():
            name, colon, _ = part.partition(":")
            if colon:
                names[name] = None
    return list(names)


def _edges(study: Study) -> int:
    return sum(len(task.parents) + len(task.after) for task in study.tasks)


@click.command(
    epilog="""\b
Examples:
  cantle simulate study.yaml                          on this machine's cores
  cantle simulate study.yaml --nodes 10x8             on ten nodes of 8 cores
  cantle simulate study.yaml --nodes 2x64:4,10x8      two sorts, one with 4 GPUs
  cantle simulate montage.json --cores 8 --jitter 0.3 --failures 0.01 --seed 7
  cantle simulate study.yaml --nodes 4x8 --lose 120:3 node 3 goes after two minutes

\b
Tasks take as long as they are estimated. The same seed tells the same story.
Exit status: 0 when all tasks would be done, 2 otherwise, 1 when the study cannot
be read.""",
)
@click.argument("file", metavar="FILE", type=STUDY)
@click.option("--nodes", metavar="NxCORES[:GPUS]", help="Nodes, as in 10x8 or 4x64:8; groups joined by commas.")
@click.option("--cores", type=click.IntRange(min=1), help="One node with so many cores (default: as many as here).")
@click.option("--memory", metavar="SIZE", help="Memory of each node, as in 64 GB (default: as much as needed).")
@click.option("--seed", type=int, default=0, help="Seed for everything by chance (default 0).")
@click.option(
    "--jitter", type=click.FloatRange(min=0), default=0.0, metavar="X", help="Spread of durations: 0.3 is about 30 %."
)
@click.option(
    "--failures", type=click.FloatRange(0, 1), default=0.0, metavar="P", help="Chance of each attempt to fail."
)
@click.option("--lose", multiple=True, metavar="S:NODE", help="Lose a node at this second; may be repeated.")
@click.option(
    "--start-delay", type=click.FloatRange(min=0), default=0.0, metavar="S", help="Seconds from launch to start."
)
@click.option(
    "--default-estimate",
    type=click.FloatRange(min=0),
    default=1.0,
    metavar="S",
    help="Duration of tasks without an estimate, at most their walltime (default 1).",
)
@click.option(
    "-a", "--attempts", type=click.IntRange(min=1), default=1, metavar="N", help="Tries of a failing task (default 1)."
)
@click.option("--scale", type=click.FloatRange(min=0), default=1.0, metavar="X", help="Recorded durations times X.")
@limit_options
@click.option("--packer", default="best-fit", metavar="NAME", help="Packing policy: best-fit or module:function.")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def simulate(
    file: Path,
    nodes: str | None,
    cores: int | None,
    memory: str | None,
    seed: int,
    jitter: float,
    failures: float,
    lose: tuple[str, ...],
    start_delay: float,
    default_estimate: float,
    attempts: int,
    scale: float,
    throttle: int | None,
    rlimit: int | None,
    fail_fast: bool,
    packer: str,
    pgen: Path | None,
    pargs: tuple[str, ...],
    reader: str,
    launcher: str,
    as_json: bool,
) -> int:
    """Run a study in simulated time, on machines that need not exist: when would it end, and what would stand idle?"""
    from cantle.plugins import find
    from cantle.report.forecast import Chances, forecast, parse_losses, parse_nodes
    from cantle.report.foreseen import forecast_object, page

    if nodes and cores:
        raise click.UsageError("--nodes and --cores exclude each other: --cores N is --nodes 1xN")
    study = _read(file, pgen, pargs, reader, launcher, attempts=attempts, scale=scale)
    machines = parse_nodes(nodes or f"1x{cores or _cores_here()}", study, _memory(memory))
    found = forecast(
        study,
        machines,
        limits_of(study, throttle, rlimit, fail_fast),
        Chances(
            seed=seed,
            jitter=jitter,
            failures=failures,
            start_delay_s=start_delay,
            losses=parse_losses(lose, machines),
        ),
        default_estimate,
        find("packers", packer),
    )
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(forecast_object(found, machines)))
    else:
        for warning in study.warnings:
            print(f"cantle: warning: {warning}", file=sys.stderr)
        for line in page(found, machines, default_estimate):
            click.echo(line)
    return 0 if found.state.succeeded else 2


def _cores_here() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    from cantle.readers.quantities import memory_mib

    try:
        return memory_mib(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--memory") from problem
