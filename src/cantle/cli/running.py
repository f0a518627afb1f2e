"""`cantle run`: a study, on this machine, now."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cantle.cli.machine import (
    conduct,
    fresh_directory,
    limit_options,
    limits_of,
    machine_options,
    say,
    this_machine,
)


@click.command(
    epilog="""\b
Examples:
  cantle run study.yaml
  cantle run study.yaml -o out --cores 8 --throttle 4
  cantle run study.yaml --pgen generator.py --pargs SIZE:10
  cantle run study.yaml --dry -o look       write all scripts, run nothing
  cantle run montage.json --scale 0.01      replay a recorded workflow, a hundred times faster

Exit status: 0 all tasks done, 2 some failed, 3 canceled or stopped (Ctrl-C), 1 nothing could be run.""",
)
@click.argument("study_file", metavar="STUDY", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Directory of the run (default: NAME_date-time).")
@click.option(
    "-a",
    "--attempts",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Tries of a failing task, for steps that do not say `retries` themselves (default 1).",
)
@limit_options
@click.option("-p", "--pgen", type=click.Path(path_type=Path), help="Parameter generator: a Python file.")
@click.option("--pargs", multiple=True, metavar="KEY:VALUE", help="Argument for the generator; may be repeated.")
@click.option("--dry", is_flag=True, help="Make the directory with all scripts; run nothing.")
@click.option("--hashws", is_flag=True, help="Short names for workspaces instead of parameter labels.")
@click.option("--usetmp", is_flag=True, help="Write scripts to a temporary directory and run them from there.")
@click.option("-y", "--yes", "-Y", is_flag=True, help="Replace the run that stands in the output directory.")
@click.option("-n", "--no", is_flag=True, help="Check everything and say what would run; run nothing.")
@click.option("-s", "--sleeptime", type=float, metavar="S", help="Accepted without effect: nothing is polled here.")
@click.option("-fg", "--fg", "foreground", is_flag=True, help="Accepted without effect: runs are in the foreground.")
@click.option("--reader", default="", metavar="NAME", help="How to read the file: maestro, wfformat or module:class.")
@click.option(
    "--scale", type=click.FloatRange(min=0), default=1.0, metavar="X", help="Recorded durations (WfFormat) times X."
)
@click.option("--spin", is_flag=True, help="Replay recorded durations as busy loops instead of sleeps.")
@click.option("--launcher", default="", metavar="NAME", help="MPI flavour for $(LAUNCHER): openmpi, mpich, srun, …")
@machine_options
def run(
    study_file: Path,
    out: Path | None,
    attempts: int,
    throttle: int | None,
    rlimit: int | None,
    fail_fast: bool,
    pgen: Path | None,
    pargs: tuple[str, ...],
    dry: bool,
    hashws: bool,
    usetmp: bool,
    yes: bool,
    no: bool,
    sleeptime: float | None,  # noqa: ARG001 - Maestro's, accepted without effect
    foreground: bool,  # noqa: ARG001 - Maestro's, accepted without effect
    reader: str,
    scale: float,
    spin: bool,
    launcher: str,
    cores: int | None,
    gpus: int | None,
    memory: str | None,
    packer: str,
    grace: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run a study on this machine, in parallel, within its cores, GPUs and memory.

    STUDY is a Maestro study (YAML), which runs as it is, or a WfFormat instance (JSON). The run's directory holds the
    workspaces, status.csv, and all that is needed to resume.
    """
    # The machine comes first: its runner is forked while this process is small and has no threads.
    machine = None if dry or no else this_machine(cores, gpus, memory, grace)

    import msgspec

    from cantle.plugins import reader_for
    from cantle.readers.base import ReadOptions
    from cantle.runtime.conducting import begin

    chosen = reader_for(study_file, reader)
    options = ReadOptions(
        pgen=str(pgen.absolute()) if pgen else "",
        pargs=pargs,
        hashws=hashws,
        usetmp=usetmp,
        attempts=attempts,
        scale=scale,
        spin=spin,
        launcher=launcher,
        dry=dry or no,
    )
    study = chosen.read(study_file, options)
    for warning in study.warnings:
        say(f"cantle: warning: {warning}")
    if no:
        click.echo(
            f"{study.name}: {len(study.tasks):,} tasks of {len({s.name for s in study.steps})} steps; nothing was run"
        )
        return 0
    layout = fresh_directory(out, Path(study.output_parent or Path.cwd()), study.name, yes)
    if machine is None:
        from cantle.runtime.dry import write_scripts

        written = write_scripts(study, layout)
        click.echo(f"{written:,} scripts written to {layout.directory}; nothing was run")
        return 0
    conductor = begin(
        study,
        layout,
        reader or chosen.name,
        limits_of(study, throttle, rlimit, fail_fast),
        msgspec.json.encode(options).decode(),
        sys.argv,
    )
    return conduct(conductor, machine, packer=packer, quiet=quiet, as_json=as_json)
