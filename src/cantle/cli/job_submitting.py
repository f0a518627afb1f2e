"""How does what `cantle orchestrate` was asked for get into the queue, and what is told of it?"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from cantle.allocations.submission.base import BatchSystem
    from cantle.allocations.submission.wanted import JobWanted
    from cantle.runtime.orchestration.records import Jobs
    from cantle.store.layout import Layout


def put_in_the_queue(
    layout: Layout,
    name: str,
    system: BatchSystem,
    job: JobWanted,
    asked: Namespace,
    *,
    command: list[str] | None = None,
    conductor: list[str] | None = None,
    resumed: int = 0,
) -> Jobs:
    """Write down what is asked for, and submit the first job. Raises RequestError when the batch system refuses it."""
    from cantle.runtime.orchestration.handing_in import hand_in
    from cantle.runtime.orchestration.records import Asked, Jobs

    jobs = Jobs(layout)
    jobs.ask(
        Asked(
            system=name,
            job=job,
            command=tuple(command or ()),
            conductor=tuple(conductor or ()),
            most_jobs=asked.most_jobs if asked.until_done else 1,
            python=sys.executable,
        )
    )
    last = jobs.last()
    hand_in(jobs, system, last.number + 1 if last else 1, retry=True, resumed=resumed)
    return jobs


def tell(jobs: Jobs, system: str, job: JobWanted, reasons: list[str], asked: Namespace) -> None:
    """Tell what was submitted, and why it is as it is."""
    from cantle.runtime.orchestration.watch import in_words

    last = jobs.last()
    if asked.as_json:
        import msgspec

        told: dict[str, object] = {
            "job": last.ident if last else "",
            "system": system,
            "directory": str(jobs.layout.directory),
        }
        told |= {"nodes": job.nodes, "walltime_s": job.walltime_s, "reasons": reasons}
        print(msgspec.json.encode(told).decode(), flush=True)
    elif not asked.quiet:
        print(
            f"{job.name}: {in_words(last, system)} {_asks_for(job)}; its directory is {jobs.layout.directory}",
            flush=True,
        )
        for reason in reasons:
            print(f"  {reason}", flush=True)


def _asks_for(job: JobWanted) -> str:
    from cantle.model.resources import count
    from cantle.report.wording import duration

    text = f"asks for {count(job.nodes, 'node')}"
    return f"{text} for {duration(job.walltime_s)}" if job.walltime_s else text


def print_dry(job: JobWanted, system: BatchSystem, reasons: list[str]) -> int:
    """Print what would be submitted, and why it is as it is. The exit status."""
    from msgspec.structs import replace

    for reason in reasons:
        print(reason)
    print(shlex.join(system.words(replace(job, script="SCRIPT", output="OUTPUT"))))
    return 0


def clean_up(layout: Layout) -> None:
    """Nothing came of it: leave no directory that looks like a run."""
    from shutil import rmtree

    rmtree(layout.directory, ignore_errors=True)


def outliving(job: JobWanted) -> JobWanted:
    """A run loses no more than its attempts there when a node goes; so the job shall not end for that."""
    from msgspec.structs import replace

    return replace(job, outlives_nodes=job.nodes > 1)
