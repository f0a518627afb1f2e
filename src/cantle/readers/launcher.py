"""What does `$(LAUNCHER)` become?

The bare token stands for the whole step, `$(LAUNCHER)[2n, 4p]` for a part of it; `[4p]` and the old `[nodes, procs]` are
parts too. Both kinds may stand in one script. A flavour is one function from a part to the words that start it. The flavours
of batch systems write what Maestro writes; those of one machine write nothing for a single process, which needs no MPI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .settings import Settings

NAME = "$(LAUNCHER)"
# Patterns as text: re compiles them when they are first used, and many a study uses none.
USE = r"\$\(LAUNCHER\)(?:\[([^\]\n]*)\])?([ \t]?)"
_PART = r"(\d+)([np]?)"


class Part(NamedTuple):
    """How many processes on how many nodes; `nodes` 0: not said."""

    procs: int
    nodes: int


Flavour = Callable[[Part, Settings, Mapping[str, Any]], str]
"""From a part, its step's settings and the batch block to a command prefix; "" where none is needed."""


def parse_part(text: str) -> Part:
    """What stands between the brackets. Raises ValueError with a sentence."""
    counts: dict[str, int] = {}
    for word in text.split(","):
        match = re.fullmatch(_PART, word.strip())
        if not match:
            raise ValueError(f"[{text}] is no part of a step: write [2n, 4p], [4p] or [nodes, procs]")
        number, unit = match.groups()
        unit = unit or ("n" if "n" not in counts else "p")
        if unit in counts:
            raise ValueError(f"[{text}] says {'nodes' if unit == 'n' else 'procs'} twice")
        counts[unit] = int(number)
    if not counts.get("p"):
        raise ValueError(f"[{text}] must say how many processes: [4p], say")
    return Part(counts["p"], counts.get("n", 0))


def brackets(script: str) -> list[str]:
    """What stands in the brackets of this script's launchers, in order."""
    return [match[1] for match in re.finditer(USE, script) if match[1] is not None]


def complaints(parts: list[str], settings: Settings) -> list[str]:
    """What is wrong with the parts that one script asks for: sentences."""
    found = []
    parsed = []
    for text in parts:
        try:
            parsed.append(parse_part(text))
        except ValueError as error:
            found.append(f"{NAME}{error}")
    totals = [("procs", sum(part.procs for part in parsed), settings.ranks)]
    if settings.nodes:
        totals.append(("nodes", sum(part.nodes for part in parsed), settings.nodes))
    for name, total, most in totals:
        if total > most:
            found.append(f"the {NAME}[...] of this script add up to {total} {name}, but the step has {most}")
    return found


def processes(script: str, parts: list[str], settings: Settings) -> int:
    """The most processes that one launch of this script starts; 0 when it has no launcher. `parts` must be sound."""
    bare = [settings.ranks] if any(match[1] is None for match in re.finditer(USE, script)) else []
    return max([*bare, *(parse_part(text).procs for text in parts)], default=0)


def substitute(script: str, settings: Settings, flavour: Flavour, batch: Mapping[str, Any]) -> str:
    """The script with each launcher replaced. Where the flavour has nothing to say, one blank after it goes too."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] is None:
            part = Part(settings.ranks, settings.nodes)
        else:
            try:
                part = parse_part(match[1])
            except ValueError:
                return match[0]
        prefix = flavour(part, settings, batch)
        return prefix + match[2] if prefix else ""

    return re.sub(USE, replacement, script) if NAME in script else script


def srun(part: Part, settings: Settings, _batch: Mapping[str, Any]) -> str:
    """Slurm's."""
    words = ["srun", "-n", str(part.procs)]
    if part.nodes:
        words += ["-N", str(part.nodes)]
    if settings.cores_per_task:
        words += ["-c", str(settings.cores_per_task)]
    return " ".join(words)


def jsrun(part: Part, settings: Settings, _batch: Mapping[str, Any]) -> str:
    """LSF's."""
    words = ["jsrun", "--nrs", str(part.procs), "-b", settings.bind or "rs"]
    if settings.gpus:
        words += ["-g", str(settings.gpus)]
    if settings.bind_gpus:
        words += ["-B", settings.bind_gpus]
    words += ["-a", str(settings.tasks_per_rs or 1), "-r", str(settings.rs_per_node or 1)]
    return " ".join([*words, "-c", str(settings.cpus_per_rs or 1)])


def flux(part: Part, settings: Settings, batch: Mapping[str, Any]) -> str:
    """Flux's, from version 0.49 on. `args` and `launcher_args` of the batch block are added."""
    words = ["flux", "run"]
    if part.nodes:
        words += ["-N", str(part.nodes)]
    words += ["-n", str(part.procs)]
    if settings.exclusive_launcher:
        words.append("--exclusive")
    else:
        if settings.cores_per_task:
            words += ["-c", str(settings.cores_per_task)]
        if settings.gpus:
            words += ["-g", str(settings.gpus)]
    return " ".join(words + flux_words(batch.get("launcher_args")) + flux_words({"o": batch.get("args")}))


def flux_words(groups: Any) -> list[str]:
    """Further options for flux: `{setattr: {a.b: 1}}` as `--setattr=a.b=1`, `{t: {x: y}}` as `-t x=y`."""
    long = {"o": "setopt", "S": "setattr"}
    words = []
    for group, entries in (groups or {}).items():
        option = long.get(group, group)
        prefix = f"-{option} " if len(option) == 1 else f"--{option}="
        words += [prefix + entry for entry in _leaves("", entries or {})]
    return words


def _leaves(path: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, child in value.items() for leaf in _leaves(f"{path}.{key}" if path else str(key), child)]
    if isinstance(value, bool):
        value = str(value).lower()
    return [f"{path}={value}" if value else path]


def _machine(program: str, *options: str) -> Flavour:
    def flavour(part: Part, _settings: Settings, _batch: Mapping[str, Any]) -> str:
        return "" if part.procs == 1 else " ".join([program, "-n", str(part.procs), *options])

    return flavour


def mpich(program: str = "mpiexec") -> Flavour:
    """MPICH and its kin (Intel MPI, MVAPICH), which start as many processes as they are told."""
    return _machine(program)


def openmpi(program: str = "mpiexec", as_root: bool = False, major: int = 4) -> Flavour:
    """Open MPI.

    Processes stay where Cantle put the step: Open MPI's own binding would tie every step to the machine's first cores. It
    counts real cores, so that a step on logical ones needs leave to use more.
    """
    options = ["--bind-to", "none"]
    options += ["--map-by", ":OVERSUBSCRIBE"] if major >= 5 else ["--oversubscribe"]
    return _machine(program, *(["--allow-run-as-root"] if as_root else []), *options)


BATCH_FLAVOURS: dict[str, Flavour] = {"srun": srun, "slurm": srun, "jsrun": jsrun, "lsf": jsrun, "flux": flux}
MACHINE_FLAVOURS = ("openmpi", "mpich")
PROGRAMS = ("mpiexec", "mpirun")


def flavour_named(name: str, as_root: bool) -> Flavour | None:
    """The flavour of this name; None for an unknown one."""
    if name == "openmpi":
        return openmpi(as_root=as_root)
    return mpich() if name == "mpich" else BATCH_FLAVOURS.get(name)


def flavour_of_version(program: str, version: str, as_root: bool) -> Flavour:
    """The flavour of a program by what its `--version` says; what is not known is taken for MPICH's kin."""
    match = re.search(r"(?:Open MPI|OpenRTE|PRRTE)\)?\s*v?(\d+)", version)
    if not match:
        return mpich(program)
    return openmpi(program, as_root, 5 if "PRRTE" in version else int(match[1]))


def flavour_of_machine() -> Flavour | None:
    """What this machine has to start MPI programs with, found by running `--version` once; None when it has nothing."""
    import os
    import shutil
    import subprocess

    for program in PROGRAMS:
        if shutil.which(program):
            try:
                result = subprocess.run(
                    [program, "--version"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=20,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
            return flavour_of_version(program, result.stdout + result.stderr, os.geteuid() == 0)
    return None
