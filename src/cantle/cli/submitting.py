"""`cantle submit`, `run --pilot`: a study, in an allocation that is held already."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, between, wrong
from cantle.cli.machine import fresh_directory, limits_of, say, telling_options
from cantle.cli.running import read_study, study_arguments
from cantle.runtime.whereabouts import JOBS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import TypeAlias

    from cantle.model.study import Study
    from cantle.runtime.pilot.submission import Submission
    from cantle.store.layout import Layout

    Read: TypeAlias = Callable[[], tuple[Study, str, str]]


def _arguments(parser: ArgumentParser) -> None:
    study_arguments(parser)
    group = parser.add_argument_group("the pilot")
    group.add_argument(
        "--pilot", default="default", metavar="NAME", help="its name, or its directory (default: default)"
    )
    group.add_argument(
        "--priority",
        type=between(-20, 20),
        default=0.0,
        metavar="P",
        help="from -20 to 20: each step up counts as twice the weight (default 0)",
    )
    group.add_argument(
        "--weight",
        type=between(0.001, 1000),
        default=1.0,
        metavar="W",
        help="its part of the nodes beside other studies, from 0.001 to 1000 (default 1)",
    )
    group.add_argument("--wait", action="store_true", help="wait until it is over, and end as it did")
    group.add_argument("--follow", action="store_true", help="the same, telling of it as `cantle run` does")
    telling_options(parser, "print JSON objects, one a line: where it went, then as `run`")


def _submit(asked: Namespace) -> int:
    from cantle.cli.following import follow

    name, layout, where = submit(asked, lambda: read_study(asked, dry=False))
    if asked.as_json:
        import msgspec

        print(msgspec.json.encode({"job": name, "directory": str(layout.directory)}).decode(), flush=True)
    elif not asked.quiet:
        print(f"{name} is in {where}; its directory is {layout.directory}", flush=True)
    if asked.wait and not asked.follow:
        from cantle.cli.watching import wait_for

        return wait_for(layout.directory)
    return follow(layout.directory, asked, where) if asked.follow else 0


def run_in_pilot(asked: Namespace, read: Read) -> int:
    """Submit and follow: `cantle run --pilot`, `cantle map --pilot`."""
    from cantle.cli.following import follow

    options = ("places", "hosts", "environment", "nodes", "cores", "gpus", "memory", "resource", "packer", "grace")
    given = [f"--{option}" for option in options if getattr(asked, option) not in (None, [], "")]
    if given:
        raise wrong(
            f"with --pilot the machine is the pilot's, and so is what is done with it: leave out {', '.join(given)}, or give "
            f"{'it' if len(given) == 1 else 'them'} to `cantle up`"
        )
    asked.priority, asked.weight = 0.0, 1.0
    name, layout, where = submit(asked, read)
    told = f"cantle: {name} is in {where}; its directory is {layout.directory}"
    return follow(layout.directory, asked, where, first="" if asked.as_json or asked.quiet else told)


def submit(asked: Namespace, read: Read) -> tuple[str, Layout, str]:
    """Hand over the study that `read` gives. What it is called there, its directory, and who has it now, in words.

    Everything is checked here, before the pilot hears of it. Raises CantleError; then no trace of the study is left.
    """
    from cantle.runtime.conducting import copy_for_people, keep
    from cantle.runtime.pilot import address, messages, submission, visiting

    pilot = address.directory_of(asked.pilot)
    where = f"the pilot {asked.pilot}"
    visiting.ask(pilot, asked.pilot, messages.Jobs())  # whether it is up, before anything is read or written
    study, reader, options = read()
    limits = limits_of(study, asked.throttle, asked.rlimit, asked.fail_fast)
    layout = fresh_directory(asked.out, Path(study.output_parent or Path.cwd()), study.name, asked.yes).create()
    directory = str(layout.directory)
    try:
        keep(study, layout.study)
        copy_for_people(study, layout)
        study.work(directory).prepare(directory)
        submission.put(
            layout,
            submission.Submission(
                pilot=str(pilot),
                name=study.name,
                reader=reader,
                digest=study.digest,
                tasks=len(study.tasks),
                source=study.source,
                options=options,
                limits=limits,
                priority=asked.priority,
                weight=asked.weight,
                slicing=study.slicing,
                env=_environment(),
                sent=_now(),
            ),
        )
        answer = visiting.ask(pilot, asked.pilot, messages.Submit(directory), timeout_s=None)
    except BaseException:
        _clean_up(layout)
        raise
    if not isinstance(answer, messages.Taken):
        raise wrong(f"{where} gave an answer that makes no sense here: {answer}")
    return answer.job, layout, where


def _environment() -> dict[bytes, bytes]:
    """What the study's tasks inherit: this shell's, without what belongs to a task of ours in which it may run."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CANTLE_")}
    if any(name in environ for name in JOBS):
        from cantle.allocations.batch.stale import cleaned

        environ = cleaned(environ)
    return {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}


def _now() -> float:
    from time import time

    return time()


def _clean_up(layout: Layout) -> None:
    """Nothing came of it: leave no directory that looks like a run. What the pilot took in is the pilot's."""
    from shutil import rmtree

    from cantle.errors import CantleError
    from cantle.runtime.pilot import submission

    try:
        sent: Submission | None = submission.get(layout)
    except CantleError:
        sent = None
    if layout.exists() or (sent is not None and sent.number >= 0):
        say(f"cantle: the study is the pilot's all the same: look with `cantle status {layout.directory}`")
        return
    submission.drop(layout)
    rmtree(layout.own, ignore_errors=True)
    for left in (layout.directory / Path(sent.source).name,) if sent is not None and sent.source else ():
        left.unlink(missing_ok=True)
    try:
        layout.directory.rmdir()
    except OSError:  # something else lies there, as what was fetched for the study
        pass


SUBMIT = Command(
    "submit",
    "",
    _arguments,
    _submit,
    """\
The study is checked here, and runs in the pilot, beside others; its directory is that of any run: status, logs, explain,
cancel, update, wait and, later, resume work on it. Its tasks see this shell's environment.

Exit status: 0 when it was taken in, 1 otherwise; with --wait or --follow as of `cantle run`.""",
    """\
  cantle up; cantle submit study.yaml
  cantle submit study.yaml -o out --pilot night --priority 1
  cantle submit study.yaml --follow        ... and tell of it until it is over
  cantle jobs                              how all of them stand""",
)
