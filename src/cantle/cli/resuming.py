"""`cantle resume`: go on where a run ended, however it ended."""

from __future__ import annotations

from pathlib import Path

import click

from cantle.cli.machine import conduct, machine_options, say, this_machine


@click.command(
    epilog="""\b
Examples:
  cantle resume out                        after a crash, Ctrl-C, kill -9, a full disk or failed tasks
  cantle resume out --keep-failed          leave failed and canceled tasks as they are
  cantle resume out --study study.yaml     the study was edited: run again what changed, keep the rest

Exit status: as of `cantle run`.""",
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--study",
    "study_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The study as it reads now. Tasks whose commands changed run again, with all that follows from them.",
)
@click.option("--keep-failed", is_flag=True, help="Do not try failed, timed out or canceled tasks again.")
@click.option("--take-over", is_flag=True, help="The conductor on another machine is dead, although it looks alive.")
@machine_options
def resume(
    directory: Path,
    study_file: Path | None,
    keep_failed: bool,
    take_over: bool,
    cores: int | None,
    gpus: int | None,
    memory: str | None,
    packer: str,
    grace: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Go on with the run in DIR.

    Finished tasks are never run again. What was running when the run ended gets a new attempt, and so do tasks that
    failed or were canceled. A study that was edited meanwhile does not count, unless you name it with --study.
    """
    from cantle.store.layout import Layout

    layout = Layout(directory).require()
    machine = this_machine(cores, gpus, memory, grace)

    from cantle.model.study import Study
    from cantle.plugins import find
    from cantle.runtime.conducting import resume as take_up

    def reopen(reader: str, folder: Path) -> Study:
        study: Study = find("readers", reader)().reopen(folder)
        return study

    changed = None
    if study_file is not None:
        from cantle.cli.reading import read_like_before

        changed = read_like_before(layout, study_file)
    conductor = take_up(
        layout,
        reopen,
        changed=changed,
        retry=not keep_failed,
        take_over=take_over,
        note=lambda text: say(f"cantle: {text}"),
    )
    return conduct(conductor, machine, packer=packer, quiet=quiet, as_json=as_json)
