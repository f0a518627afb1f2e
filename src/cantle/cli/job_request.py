"""What shall a batch job be like, by the command line, by the study, or by the plan, and who said what?

The command line wins over the study's `batch`, that over what a plan recommends. What nobody says the batch system decides.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantle.cli.command import amount, at_least, wrong
from cantle.errors import Problem, StudyError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.allocations.submission.base import BatchSystem
    from cantle.allocations.submission.wanted import JobWanted, Offer
    from cantle.model.study import Limits, Study

MARGIN, TO_BEGIN_S = 0.25, 120.0
"""So much more time than foreseen is asked for: durations are estimates, and a conductor begins and ends in order."""
ROUND_S = 300.0
_TEXTS = ("queue", "account", "reservation", "qos", "constraint")
_COUNTS = ("nodes", "gpus", "cores")
_SPELLINGS = {"bank": "account", "partition": "queue", "cores_per_node": "cores"}


def job_options(parser: ArgumentParser) -> None:
    """What the batch job is to be like."""
    job = parser.add_argument_group("the batch job (over what the study says under `batch`)")
    job.add_argument("--nodes", type=at_least(1), metavar="N", help="nodes (default: as `cantle plan` recommends)")
    job.add_argument(
        "--time",
        type=amount("walltime_s"),
        metavar="TIME",
        help="for how long: 30 is minutes; 1:30:00, 2h (default: as the plan foresees, and a quarter more)",
    )
    job.add_argument("--queue", "--partition", metavar="NAME", help="queue, or partition")
    job.add_argument("--account", "--bank", metavar="NAME", help="who pays")
    job.add_argument("--reservation", metavar="NAME", help="a reservation that the job may use")
    job.add_argument("--qos", metavar="NAME", help="quality of service")
    job.add_argument("--constraint", metavar="WORDS", help="what the nodes must have, in the batch system's words")
    job.add_argument(
        "--gpus", type=at_least(0), metavar="N", help="GPUs on each node (default: where steps ask for some)"
    )
    job.add_argument("--exclusive", action="store_true", help="whole nodes; so it is without --cores-per-node")
    job.add_argument(
        "--cores-per-node",
        dest="cores",
        type=at_least(1),
        metavar="N",
        help="so many cores of each node, not whole ones",
    )
    job.add_argument("--memory", type=amount("memory_mib"), metavar="SIZE", help="memory on each node")
    job.add_argument("--args", default="", metavar="WORDS", help="further options of the submit command, in one word")
    job.add_argument("--job-name", metavar="NAME", help="what the queue shows (default: the study's name)")
    job.add_argument(
        "--system", metavar="NAME", help="slurm, pbs, lsf, flux or module:class (default: the study's, or what is here)"
    )
    plan = parser.add_argument_group("what the plan assumes")
    plan.add_argument(
        "--default-estimate",
        type=amount("duration_s"),
        metavar="TIME",
        help="how long tasks take for which the study has neither an estimate nor a walltime",
    )
    plan.add_argument(
        "--finish-by", type=amount("duration_s"), metavar="TIME", help="as many nodes as let it end within this time"
    )


def system_for(asked: Namespace, batch: dict[str, Any]) -> tuple[str, BatchSystem]:
    """The batch system and its name. Raises RequestError when there is none."""
    from cantle.plugins import made

    name = asked.system or str(batch.get("type", ""))
    if not asked.system and name in ("", "local", "local_pool"):
        from cantle.allocations.submission.choosing import system_here

        name = system_here()
    system: BatchSystem = made("batch_systems", name)
    return name, system


def job_for(
    asked: Namespace, batch: dict[str, Any], name: str, source: str, before: JobWanted | None = None
) -> tuple[JobWanted, set[str]]:
    """The job as the command line, then the study's `batch` (or an earlier job of the run) say; and what they say.

    Raises StudyError for what in `batch` makes no sense, RequestError for the command line.
    """
    from msgspec.structs import replace

    from cantle.allocations.submission.wanted import JobWanted

    if asked.exclusive and asked.cores:
        raise wrong("--exclusive and --cores-per-node exclude each other")
    try:
        extra = tuple(shlex.split(asked.args))
    except ValueError as problem:
        raise wrong(f"--args {asked.args!r}: {problem}") from None
    said = _of_study(batch, source)
    if before is not None:
        kept = (*_TEXTS, *_COUNTS, "walltime_s", "memory_mib", "extra")
        said = {key: getattr(before, key) for key in kept}
    said |= {key: value for key in (*_TEXTS, *_COUNTS) if (value := getattr(asked, key)) is not None}
    if asked.exclusive:
        said["cores"] = 0
    if asked.time is not None:
        said["walltime_s"] = asked.time
    if asked.memory is not None:
        said["memory_mib"] = int(asked.memory)
    if extra:
        said["extra"] = extra if before is not None else (*said.get("extra", ()), *extra)
    job = JobWanted(name=asked.job_name or name, script="", output="", directory=str(Path.cwd()))
    return replace(job, **said), set(said)


def _of_study(batch: dict[str, Any], source: str) -> dict[str, Any]:
    """What the study says under `batch`, in our words."""
    from cantle.readers.quantities import walltime_s

    said: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in batch.items():
        ours = _SPELLINGS.get(key.replace(" ", "_"), key)
        if value is None or value == "":
            continue
        if ours in _TEXTS:
            said[ours] = str(value)
        elif ours in _COUNTS:
            if isinstance(value, bool) or not str(value).isdecimal() or (int(value) < 1 and ours != "gpus"):
                problems.append(Problem(source, 0, f"batch.{key}", f"must be a whole number, not {value!r}"))
            else:
                said[ours] = int(value)
        elif key in ("walltime", "time"):
            try:
                said["walltime_s"] = walltime_s(str(value), hours_first=batch.get("type") == "lsf")
            except ValueError:
                problems.append(Problem(source, 0, f"batch.{key}", f"must be a walltime, '1:30:00' say, not {value!r}"))
        elif key in ("args", "allocation_args"):
            said["extra"] = (*said.get("extra", ()), *_words(value, batch.get("type")))
    if problems:
        raise StudyError(problems)
    return said


def _words(value: Any, system: str | None) -> list[str]:
    """Further words of the submit command, from a text, a list, or a mapping as it stands for Flux."""
    if isinstance(value, dict):
        if system == "flux":
            from cantle.readers.launcher import flux_words

            return flux_words(value)
        return [f"--{key}" if each in (None, "") else f"--{key}={each}" for key, each in value.items()]
    if isinstance(value, list):
        return [str(each) for each in value]
    return shlex.split(str(value))


def as_planned(
    job: JobWanted, said: set[str], study: Study, limits: Limits, offer: Offer | None, asked: Namespace
) -> tuple[JobWanted, list[str]]:
    """The job with what nobody said, as the plan recommends; and why, in sentences.

    Raises RequestError when no task could run on such nodes.
    """
    from msgspec.structs import replace

    from cantle.cli.foreseeing import cores_here
    from cantle.core.packing import best_fit
    from cantle.model.resources import count
    from cantle.report.durations import durations_of
    from cantle.report.planning import foresee, groups_named, groups_worth_a_look, recommend
    from cantle.report.wording import duration

    told = []
    gpus = max((step.needs.gpus for step in study.steps), default=0)
    if gpus and "gpus" not in said:
        job = replace(job, gpus=max(gpus, offer.gpus if offer and not job.cores else 0))
        told.append(f"{count(job.gpus, 'GPU')} on each node, since steps ask for some")
    if {"nodes", "walltime_s"} <= said:
        return job, told
    cores = job.cores or (offer.cores if offer else cores_here())
    study, known = _as_long_as_allowed(study)
    durations = durations_of(study, asked.default_estimate or 1.0)
    sort = f"x{cores}:{job.gpus}" if job.gpus else f"x{cores}"
    if "nodes" in said:
        numbers = [job.nodes]
    else:
        numbers = [len(nodes) for _, nodes in groups_worth_a_look(study, durations, cores, job.memory_mib or None)]
        most = offer.nodes if offer else numbers[-1]
        numbers = [n for n in numbers if n <= most] or [most]
    groups = groups_named(",".join(f"{n}{sort}" for n in numbers), cores, study, job.memory_mib or None)
    variants = foresee(study, durations, limits, groups, [("best-fit", best_fit)])
    advice = recommend(variants, asked.finish_by)
    if advice.variant is None:
        raise wrong(f"no job is submitted: of {', '.join(text for text, _ in groups)} {advice.why}. See `cantle plan`")
    best = variants[advice.variant]
    whose = "as the queue's nodes have" if offer and not job.cores else "as here" if not job.cores else "as asked for"
    if "nodes" not in said:
        job = replace(job, nodes=len(best.machines))
        told.append(f"{count(job.nodes, 'node')}, with {count(cores, 'core')} each ({whose}): {advice.why}")
    if "walltime_s" in said:
        return job, told
    if durations.assumed and asked.default_estimate is None:
        take = "takes" if durations.assumed == 1 else "take"
        nobody = f"nobody says how long {count(durations.assumed, 'task')} {take}"
        told.append(f"as much time as the queue gives, since {nobody} (--time, --default-estimate, --times-from)")
        return job, told
    wanted_s = ROUND_S * -(-(best.found.end_s * (1 + MARGIN) + TO_BEGIN_S) // ROUND_S)
    why = f"its end is foreseen after {duration(best.found.end_s)}{known}, a quarter more and 2 min for safety"
    if offer and 0 < offer.limit_s < wanted_s:
        why += f"; the queue gives no more than {duration(offer.limit_s)}, so say --until-done as well"
        wanted_s = offer.limit_s
    told.append(f"{duration(wanted_s)}: {why}")
    return replace(job, walltime_s=wanted_s), told


def _as_long_as_allowed(study: Study) -> tuple[Study, str]:
    """The study with its steps' walltimes for estimates where nothing better is known, as none takes longer; a word on it."""
    from msgspec.structs import replace

    from cantle.model.resources import count

    tasks = []
    bounded = 0
    for task in study.tasks:
        step = study.steps[task.step]
        if not task.estimate_s and not any(step.times_s) and step.walltime_s:
            task = replace(task, estimate_s=step.walltime_s)
            bounded += 1
        tasks.append(task)
    informed = replace(study, tasks=tasks)
    return informed, f" at most ({count(bounded, 'task')} with a walltime alone)" if bounded else ""
