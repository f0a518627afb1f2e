"""`cantle run`: a study, on this machine, now."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, at_least, wrong
from cantle.cli.machine import conduct, fresh_directory, limit_options, limits_of, machine_options, say, this_machine
from cantle.cli.slicing import slicing_asked, slicing_options
from cantle.cli.unused import of_reading

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.study import Study

_OF_BATCH_SYSTEMS = ("flux", "jsrun", "srun")


def study_arguments(parser: ArgumentParser, remote: bool = False) -> None:
    """Which study, where to, and how it is read: what `run` and `submit` share. `remote`: -r may name a host."""
    parser.add_argument(
        "study_file", metavar="STUDY", type=Path, help="a Maestro study (YAML) or a WfFormat instance (JSON)"
    )
    study_options(parser, remote)


def study_options(parser: ArgumentParser, remote: bool = False) -> None:
    """Where a study's run goes to, and how its file is read. `remote`: -r may name a host."""
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="directory of the run (default: NAME_date-time)")
    parser.add_argument(
        "-y", "-Y", "--yes", action="store_true", help="replace the run that stands in the output directory"
    )
    parser.add_argument(
        "-a",
        "--attempts",
        type=at_least(1),
        default=1,
        metavar="N",
        help="tries of a failing task, for steps that do not say `retries` themselves (default 1)",
    )
    limit_options(parser, remote)
    reading = parser.add_argument_group("how the study is read")
    reading.add_argument("-p", "--pgen", type=Path, metavar="FILE", help="parameter generator: a Python file")
    reading.add_argument(
        "--pargs", action="append", default=[], metavar="KEY:VALUE", help="argument for the generator; may be repeated"
    )
    reading.add_argument("--hashws", action="store_true", help="short names for workspaces instead of parameter labels")
    reading.add_argument(
        "--usetmp", action="store_true", help="write scripts to a temporary directory and run them from there"
    )
    reading.add_argument(
        "--launcher",
        default="",
        metavar="NAME",
        help="what $(LAUNCHER) becomes: srun, openmpi, mpich, flux, jsrun, cantle or module:class (default: what belongs "
        "where the nodes are)",
    )
    reading.add_argument("--reader", default="", metavar="NAME", help="read as maestro, wfformat or module:class")
    reading.add_argument(
        "--scale", type=at_least(0, float), default=1.0, metavar="X", help="recorded durations (WfFormat) times X"
    )
    reading.add_argument("--spin", action="store_true", help="replay recorded durations as busy loops, not as sleeps")
    reading.add_argument(
        "--times-from",
        type=Path,
        metavar="RUN",
        help="where the study does not say how long tasks take, and on which width, they take as long as in this earlier run",
    )
    slicing_options(parser)


def _arguments(parser: ArgumentParser) -> None:
    study_arguments(parser, remote=True)
    parser.add_argument(
        "--remote",
        default="",
        metavar="HOST",
        help="do the whole run on that host: the study and what it names are copied, and -j is as the host has it",
    )
    parser.add_argument("-n", "--no", action="store_true", help="check everything and say what would run; run nothing")
    parser.add_argument("--dry", action="store_true", help="make the directory with all scripts; run nothing")
    parser.add_argument(
        "--pilot",
        default="",
        metavar="NAME",
        help="not on this machine, but in the pilot of that name (see `cantle up`)",
    )
    machine_options(parser)
    accepted = parser.add_argument_group("accepted without effect, since Maestro has them")
    accepted.add_argument("-s", "--sleeptime", type=float, metavar="S", help="nothing is polled here")
    accepted.add_argument("-fg", "--fg", action="store_true", help="runs are in the foreground anyway")


def _run(asked: Namespace) -> int:
    if asked.remote:
        from cantle.cli.elsewhere import run_there

        return run_there(asked, sys.argv[1:])
    if asked.pilot and not (asked.dry or asked.no):
        from cantle.cli.submitting import run_in_pilot

        return run_in_pilot(asked, lambda: read_study(asked, dry=False))
    machine = None
    if not (asked.dry or asked.no):
        errand = None
        if asked.study_file.suffix in (".yaml", ".yml") and asked.study_file.is_file():
            from cantle.readers import ahead

            errand = ahead.errand(asked.study_file)
        machine = this_machine(asked, errand)
        if asked.launcher and not machine.is_spread:
            _refuse_absent(asked.launcher)

    from cantle.runtime.conducting import begin

    study, reader, options = read_study(asked, dry=machine is None, elsewhere=machine is not None and machine.is_spread)
    if asked.no:
        from cantle.model.resources import count

        steps = len({step.name for step in study.steps})
        print(f"{study.name}: {count(len(study.tasks), 'task')} of {count(steps, 'step')}; nothing was run")
        return 0
    layout = fresh_directory(asked.out, Path(study.output_parent or Path.cwd()), study.name, asked.yes)
    if machine is None:
        from cantle.runtime.dry import write_scripts

        print(f"{write_scripts(study, layout):,} scripts written to {layout.directory}; nothing was run")
        return 0
    if study.batch.get("type", "local") != "local":
        _tell_of_its_batch_system(study, asked)
    limits = limits_of(study, asked.throttle, asked.rlimit, asked.fail_fast)
    return conduct(begin(study, layout, reader, limits, options, sys.argv), machine, asked)


def _tell_of_its_batch_system(study: Study, asked: Namespace) -> None:
    """The study asks for batch jobs, there could be some from here, and nobody has said that it shall run elsewhere."""
    import os

    from cantle.allocations.batch.systems import job_of
    from cantle.allocations.submission.choosing import system_here
    from cantle.errors import RequestError

    named = asked.cores is not None or asked.nodes or asked.places or asked.kinds or asked.listen or asked.this_machine
    try:
        if named or system_here() != study.batch["type"] or job_of(os.environ) is not None:
            return
    except RequestError:  # there is none here
        return
    say(
        f"cantle: `batch` asks for jobs of {study.batch['type']}, and this run submits none: it uses this machine. "
        f"In a job it runs by cantle orchestrate {asked.study_file}"
    )


def _refuse_absent(name: str) -> None:
    """A batch system's own launcher that is not here will not come with a module that a step loads."""
    from shutil import which

    from cantle.engines.launchers.choosing import ALSO_CALLED

    name = ALSO_CALLED.get(name, name)
    if name in _OF_BATCH_SYSTEMS and which(name) is None:
        raise wrong(
            f"--launcher {name}: there is no {name} on this machine; run inside a job of its batch system, or leave it"
        )


def read_study(asked: Namespace, dry: bool, elsewhere: bool = False) -> tuple[Study, str, str]:
    """The study that was asked for, its warnings told; the name of its reader, and the options it was read with, as JSON.

    `elsewhere`: it will run on other machines than this one.
    """
    import msgspec

    from cantle.plugins import reader_for
    from cantle.readers.base import ReadOptions

    chosen = reader_for(asked.study_file, asked.reader)
    options = ReadOptions(
        pgen=str(asked.pgen.absolute()) if asked.pgen else "",
        pargs=tuple(asked.pargs),
        hashws=asked.hashws,
        usetmp=asked.usetmp,
        attempts=asked.attempts,
        scale=asked.scale,
        spin=asked.spin,
        launcher=asked.launcher,
        dry=dry,
        slicing=slicing_asked(asked),
        elsewhere=elsewhere,
    )
    study: Study = chosen.read(asked.study_file, options)
    if asked.times_from is not None:
        from cantle.report.durations import experience_of, informed
        from cantle.report.happened import happened_in

        study = informed(study, experience_of(happened_in(asked.times_from).timeline))
    for warning in study.warnings:
        say(f"cantle: warning: {warning}")
    for text in of_reading(asked, chosen.name, study):
        say(f"cantle: without effect: {text}")
    return study, asked.reader or chosen.name, msgspec.json.encode(options).decode()


RUN = Command(
    "run",
    "",
    _arguments,
    _run,
    """\
Runs in parallel, within the cores, GPUs and memory of this machine. A Maestro study runs as it is. The run's directory
holds the workspaces, status.csv, and all that is needed to resume.

Exit status: 0 all tasks done, 2 some failed, 3 canceled or stopped (Ctrl-C), 4 stopped since the time of the nodes was up: go
on with `cantle resume` on others; 1 nothing could be run.""",
    """\
  cantle run study.yaml
  cantle run study.yaml -o out --cores 8 --throttle 4
  cantle run study.yaml --pgen generator.py --pargs SIZE:10
  cantle run study.yaml --dry -o look       write all scripts, run nothing
  cantle run study.yaml -j 4 server1:4 node[01-16]    here, and on hosts that ssh reaches
  cantle run study.yaml -r server1 -j 8     all of it on server1
  cantle run study.yaml --pilot night       in the pilot of that name, as if it were here
  cantle run montage.json --scale 0.01      replay a recorded workflow, a hundred times faster""",
)
