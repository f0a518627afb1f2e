"""`cantle validate`, `simulate`: what can be known of a study before anything of it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantle.cli.command import Command, amount, at_least, wrong
from cantle.cli.machine import limit_options, limits_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from argparse import _ArgumentGroup as ArgumentGroup

    from cantle.model.study import Study


def duration_options(group: ArgumentGroup) -> None:
    """The options that say how long tasks take where the study does not, or otherwise than it does."""
    group.add_argument(
        "--default-estimate",
        type=at_least(0, float),
        default=1.0,
        metavar="S",
        help="seconds for tasks of which nobody knows anything, at most their walltime (default 1)",
    )
    group.add_argument("--scale", type=at_least(0, float), default=1.0, metavar="X", help="recorded durations times X")


def reading_options(parser: ArgumentParser) -> None:
    """The options that say how a study's file is to be read."""
    group = parser.add_argument_group("how the study is read")
    group.add_argument("-p", "--pgen", type=Path, metavar="FILE", help="parameter generator: a Python file")
    group.add_argument(
        "--pargs", action="append", default=[], metavar="KEY:VALUE", help="argument for the generator; may be repeated"
    )
    group.add_argument("--launcher", default="", metavar="NAME", help="what $(LAUNCHER) becomes, as of `cantle run`")
    group.add_argument("--reader", default="", metavar="NAME", help="read as maestro, wfformat, map or module:class")


def read_dry(file: Path, asked: Namespace, **more: Any) -> Study:
    """The study, read as those options say, by a reader that knows that nothing of it will be run."""
    from cantle.plugins import reader_for
    from cantle.readers.base import ReadOptions

    options = ReadOptions(
        pgen=str(asked.pgen.absolute()) if asked.pgen else "",
        pargs=tuple(asked.pargs),
        launcher=asked.launcher,
        dry=True,
        **more,
    )
    study: Study = reader_for(file, asked.reader).read(file, options)
    return study


def _validate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a study")
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="print one JSON object for each file, on one line"
    )
    reading_options(parser)


def _validate(asked: Namespace) -> int:
    from cantle.errors import CantleError, Problem, StudyError

    code = 0
    for file in asked.files:
        problems: list[Problem] = []
        study = None
        try:
            study = read_dry(file, asked)
        except StudyError as bad:
            problems = bad.problems
        except CantleError as bad:
            problems = [Problem(str(file), 0, "", str(bad))]
        code = 1 if problems else code
        if asked.as_json:
            import msgspec

            print(msgspec.json.encode(_as_object(file, study, problems)).decode())
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
    print(f"{text}, {count(edges, 'edge')}")
    rows = [(name, count(tasks, "task"), needs) for name, (tasks, needs) in _steps(study).items()]
    if rows:
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for name, tasks, needs in rows:
            print(f"  {name:<{widths[0]}}  {tasks:>{widths[1]}}  {needs}")
    for warning in study.warnings:
        print(f"  warning: {warning}")


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


VALIDATE = Command(
    "validate",
    "",
    _validate_arguments,
    _validate,
    """\
Each problem is told with its file, line and key, and with what would mend it. Nothing is run.

Exit status: 0 when all files are good, 1 otherwise.""",
    """\
  cantle validate study.yaml
  cantle validate specs/*.yaml
  cantle validate study.yaml --pgen generator.py --pargs SIZE:10
  cantle validate study.yaml --json | jq .problems""",
)


def _simulate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a Maestro study (YAML) or a WfFormat instance (JSON)")
    machines = parser.add_argument_group("on what machines")
    machines.add_argument(
        "--nodes", metavar="NxCORES[:GPUS]", help="nodes, as in 10x8 or 4x64:8; groups joined by + or commas"
    )
    machines.add_argument(
        "--cores", type=at_least(1), metavar="N", help="one node with so many cores (default: as many as here)"
    )
    machines.add_argument(
        "--memory", type=amount("memory_mib"), metavar="SIZE", help="memory of each node (default: as much as needed)"
    )
    machines.add_argument(
        "--ends-in", type=amount("duration_s"), metavar="TIME", help="the nodes are held for so long only, as in 90min"
    )
    machines.add_argument(
        "--packer", default="best-fit", metavar="NAME", help="best-fit (default), first-fit, spread or module:function"
    )
    chance = parser.add_argument_group("what happens")
    chance.add_argument("--seed", type=int, default=0, metavar="N", help="seed for everything by chance (default 0)")
    chance.add_argument(
        "--jitter", type=at_least(0, float), default=0.0, metavar="X", help="spread of durations: 0.3 is about 30 %%"
    )
    chance.add_argument(
        "--failures", type=at_least(0, float), default=0.0, metavar="P", help="chance of each attempt to fail, 0 to 1"
    )
    chance.add_argument(
        "--lose", action="append", default=[], metavar="S:NODE", help="lose a node at this second; may be repeated"
    )
    chance.add_argument(
        "--start-delay", type=at_least(0, float), default=0.0, metavar="S", help="seconds from launch to start"
    )
    duration_options(chance)
    chance.add_argument(
        "-a", "--attempts", type=at_least(1), default=1, metavar="N", help="tries of a failing task (default 1)"
    )
    limit_options(parser)
    reading_options(parser)
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")


def _simulate(asked: Namespace) -> int:
    from cantle.plugins import find
    from cantle.report.forecast import Chances, ending, forecast, parse_losses, parse_nodes
    from cantle.report.foreseen import forecast_object, page
    from cantle.runtime.patience import bounded

    if asked.nodes and asked.cores:
        raise wrong("--nodes and --cores exclude each other: --cores N is --nodes 1xN")
    if asked.failures > 1:
        raise wrong(f"--failures {asked.failures:g}: a chance is between 0 and 1")
    study = read_dry(asked.file, asked, attempts=asked.attempts, scale=asked.scale)
    machines = parse_nodes(asked.nodes or f"1x{asked.cores or cores_here()}", study, asked.memory)
    machines = ending(machines, asked.ends_in)
    found = forecast(
        study,
        machines,
        limits_of(study, asked.throttle, asked.rlimit, asked.fail_fast),
        Chances(
            seed=asked.seed,
            jitter=asked.jitter,
            failures=asked.failures,
            start_delay_s=asked.start_delay,
            losses=parse_losses(asked.lose, machines),
        ),
        asked.default_estimate,
        bounded(find("packers", asked.packer), asked.packer),
    )
    if asked.as_json:
        import msgspec

        print(msgspec.json.encode(forecast_object(found, machines)).decode())
    else:
        for warning in study.warnings:
            print(f"cantle: warning: {warning}", file=sys.stderr)
        for line in page(found, machines, asked.default_estimate):
            print(line)
    return 0 if found.state.succeeded else 2


def cores_here() -> int:
    """How many cores this process may use."""
    import os

    return len(os.sched_getaffinity(0))


SIMULATE = Command(
    "simulate",
    "",
    _simulate_arguments,
    _simulate,
    """\
Tells when it would end, against the bound that no schedule can beat, and how much of the machines would stand idle.
Tasks take as long as they are estimated. The same seed tells the same story.

Exit status: 0 when all tasks would be done, 2 otherwise, 1 when the study cannot be read.""",
    """\
  cantle simulate study.yaml                           on this machine's cores
  cantle simulate study.yaml --nodes 10x8              on ten nodes of 8 cores
  cantle simulate study.yaml --nodes 2x64:4,10x8       ... of two sorts, one with 4 GPUs
  cantle simulate montage.json --cores 8 --jitter 0.3 --failures 0.01 --seed 7
  cantle simulate study.yaml --nodes 4x8 --lose 120:3  node 3 goes after two minutes
  cantle simulate study.yaml --nodes 4x8 --ends-in 1h  what can be done in an hour, and what is left""",
)
