"""`cantle orchestrate`: a study, or any command, in a batch job that is submitted for it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, Parser, at_least, wrong
from cantle.cli.job_request import as_planned, job_for, job_options, system_for
from cantle.cli.job_submitting import clean_up, outliving, print_dry, put_in_the_queue, tell
from cantle.cli.machine import fresh_directory, limits_of, say
from cantle.cli.running import read_study, study_options

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.allocations.submission.base import BatchSystem
    from cantle.allocations.submission.wanted import JobWanted
    from cantle.runtime.orchestration.records import Jobs

MOST_JOBS = 10


class _AfterDashes(str):
    """A word that stood behind the `--`."""

    __slots__ = ()


def _word(text: str) -> str:
    return _AfterDashes(text[1:]) if text.startswith("\0") else text


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="STUDY | DIR | -- COMMAND",
        nargs="*",
        type=_word,
        help="a study's file; the directory of a run to go on with; or, after --, any command",
    )
    job_options(parser)
    going = parser.add_argument_group("how it goes on")
    going.add_argument("--detach", action="store_true", help="submit, and do not wait for it")
    going.add_argument("--attach", type=Path, metavar="DIR", help="submit nothing; follow the job of this directory")
    going.add_argument(
        "--until-done",
        action="store_true",
        help="as long as its time is up before the work is done, a further job goes on",
    )
    going.add_argument(
        "--most-jobs",
        type=at_least(1),
        default=MOST_JOBS,
        metavar="N",
        help=f"with --until-done, at most so many jobs (default {MOST_JOBS})",
    )
    going.add_argument("--dry", action="store_true", help="print what would be submitted, and submit nothing")
    going.add_argument(
        "--conductor", default="", metavar="WORDS", help="further options of `cantle resume`, for inside the job"
    )
    telling = parser.add_argument_group("what is told")
    telling.add_argument("-q", "--quiet", action="store_true", help="print failures only")
    telling.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object a line")
    study_options(parser)
    from argparse import SUPPRESS

    if isinstance(parser, Parser):
        parser.take_options = ("--args", "--conductor")
    parser.add_argument("--inside", type=at_least(1), help=SUPPRESS)


def _orchestrate(asked: Namespace) -> int:
    command = [str(word) for word in asked.words if isinstance(word, _AfterDashes)]
    named = [Path(word) for word in asked.words if not isinstance(word, _AfterDashes)]
    if asked.inside is not None:
        return _inside(named[0], asked.inside)
    if asked.attach is not None:
        if asked.words:
            raise wrong("--attach submits nothing: leave out what is to be run")
        return _attach(asked.attach, asked)
    if command and named:
        raise wrong(f"say either a study ({named[0]}) or a command after --, not both")
    if command:
        return _command(command, asked)
    if len(named) != 1:
        raise wrong("name one study, the directory of a run, or a command after --")
    return _again(named[0], asked) if named[0].is_dir() else _study(named[0], asked)


def _study(file: Path, asked: Namespace) -> int:
    """Check the study, write its run down, submit the job that conducts it."""
    from cantle.runtime.conducting import begin

    asked.study_file = file
    words = _conductors_words(asked)
    study, reader, options = read_study(asked, dry=False, elsewhere=True)
    limits = limits_of(study, asked.throttle, asked.rlimit, asked.fail_fast)
    name, system = system_for(asked, study.batch)
    job, said = job_for(asked, study.batch, study.name, study.source)
    job, reasons = as_planned(job, said, study, limits, system.offer(job.queue), asked)
    job = outliving(job)
    if asked.dry:
        return print_dry(job, system, reasons)
    system.words(job)  # what there is no word for is told before anything is written
    layout = fresh_directory(asked.out, Path(study.output_parent or Path.cwd()), study.name, asked.yes)
    try:
        conductor = begin(study, layout, reader, limits, options, ["cantle", "run", *words])
        try:
            conductor.work.prepare(str(layout.directory))
        finally:
            conductor.close()
        jobs = put_in_the_queue(layout, name, system, job, asked, conductor=words)
    except BaseException:
        clean_up(layout)
        raise
    return _told(jobs, name, job, reasons, asked)


def _command(command: list[str], asked: Namespace) -> int:
    """Submit a job that runs the command."""
    if asked.until_done:
        raise wrong("--until-done is for studies: of another command nobody knows whether its work is done")
    if asked.conductor:
        raise wrong("--conductor is for studies: here there is but the command")
    name, system = system_for(asked, {})
    job, _ = job_for(asked, {}, Path(command[0]).name, "")
    if asked.dry:
        return print_dry(job, system, [])
    layout = fresh_directory(asked.out, Path.cwd(), Path(command[0]).name, asked.yes).create()
    try:
        jobs = put_in_the_queue(layout, name, system, job, asked, command=command)
    except BaseException:
        clean_up(layout)
        raise
    return _told(jobs, name, job, [], asked)


def _again(directory: Path, asked: Namespace) -> int:
    """Submit a further job that goes on with a run."""
    from cantle.cli.ending_jobs import alive
    from cantle.cli.resuming import reopen
    from cantle.errors import RequestError
    from cantle.report.loading import load_one
    from cantle.runtime.orchestration.records import Jobs
    from cantle.runtime.orchestration.watch import JobWatch
    from cantle.store.layout import Layout

    layout = Layout(directory)
    jobs = Jobs(layout)
    if jobs.exist() and alive(JobWatch(jobs)):
        raise RequestError(
            f"{JobWatch(jobs).what()} has this run: follow it with `cantle orchestrate --attach {directory}`"
        )
    if jobs.exist() and not layout.exists():
        raise RequestError(f"{directory} belongs to a command, not to a study: submit the command anew")
    run = load_one(directory)
    if run.conductor is not None:
        raise RequestError(f"a conductor is at work on {directory} ({run.conductor})")
    if run.state.succeeded:
        print(f"all tasks of the run in {directory} are done; there is nothing to go on with")
        return 0
    added = run.state.studies[0].added
    study = reopen(added.reader, layout.study)
    before = jobs.asked() if jobs.exist() else None
    name, system = system_for(asked, {"type": before.system} if before else study.batch)
    job, said = job_for(asked, study.batch, study.name, study.source, before.job if before else None)
    job, reasons = as_planned(job, said, study, run.state.studies[0].limits, system.offer(job.queue), asked)
    job = outliving(job)
    if asked.dry:
        return print_dry(job, system, reasons)
    words = _conductors_words(asked) or list(before.conductor if before else ())
    jobs.canceled = False
    jobs = put_in_the_queue(layout, name, system, job, asked, conductor=words, resumed=run.state.resumed)
    return _told(jobs, name, job, reasons, asked)


def _told(jobs: Jobs, system: str, job: JobWanted, reasons: list[str], asked: Namespace) -> int:
    """Tell what was submitted, and follow it unless nobody wants that."""
    tell(jobs, system, job, reasons, asked)
    return 0 if asked.detach else _follow(jobs, asked)


def _attach(directory: Path, asked: Namespace) -> int:
    from cantle.runtime.orchestration.records import Jobs
    from cantle.store.layout import Layout

    return _follow(Jobs(Layout(directory)).require(), asked)


def _follow(jobs: Jobs, asked: Namespace) -> int:
    from cantle.cli.job_following import follow_command, follow_study

    return (follow_command if jobs.asked().command else follow_study)(jobs, asked)


def _conductors_words(asked: Namespace) -> list[str]:
    """Further options of `cantle resume`; nonsense is told here, not in the job."""
    from cantle.cli.main import command_named

    try:
        words = shlex.split(asked.conductor)
    except ValueError as problem:
        raise wrong(f"--conductor {asked.conductor!r}: {problem}") from None
    if words:
        command_named("resume").parser().parse_args(["DIR", *words])
    return words


def _inside(directory: Path, number: int) -> int:
    """The job's own life."""
    from cantle.cli.main import command_named
    from cantle.plugins import made
    from cantle.runtime.orchestration.inside import live
    from cantle.runtime.orchestration.records import Jobs
    from cantle.store.layout import Layout

    jobs = Jobs(Layout(directory)).require()
    system: BatchSystem = made("batch_systems", jobs.asked().system)

    def conduct(words: list[str]) -> int:
        command = command_named("resume")
        return command.run(command.parser().parse_args([str(directory), *words]))

    return live(jobs, system, number, conduct, lambda text: say(f"cantle: {text}"))


ORCHESTRATE = Command(
    "orchestrate",
    "",
    _arguments,
    _orchestrate,
    """\
The study is checked here and now, and its run is written down; a batch job then conducts it on the nodes that it
gets. Nodes and time are those that `cantle plan` recommends, unless you or the study's `batch` block say others. It
is followed here as if it ran here; Ctrl-C asks whether to cancel it or to let it go on. status, logs, explain, cancel
and wait work on its directory, also while it waits in the queue.

Exit status: as of `cantle run`, or that of the command; 1 when the job ended before the run did, 130 after Ctrl-C.""",
    """\
  cantle orchestrate study.yaml
  cantle orchestrate study.yaml --nodes 4 --time 30 --queue debug --account abc
  cantle orchestrate study.yaml --time 2h --until-done --detach
  cantle orchestrate --attach DIR                       follow it again
  cantle orchestrate DIR --time 1:00:00                 go on with a run in a new job
  cantle orchestrate --nodes 2 -- mpirun ./model        any command""",
)
