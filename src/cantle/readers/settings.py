"""What does a step ask for, once its tokens are replaced by one combination's values?

Each setting is kept as it stands in the file (`Setting`) until a combination is known; `settings_of` makes `Settings` of
them and notes what is wrong. Counts may be numbers, decimal text or tokens that end as one of these.

How Maestro's keys become needs: `procs` are MPI ranks, each with `cores per task` cores (or, as LSF has it, `cpus per rs`).
Without `nodes` all of them stand on one node; with `nodes: N` each of N nodes holds its share, rounded up, and one rank a
node when `procs` is absent. `gpus` and `memory` are per node; with `gpus per task` each rank
has so many for itself. A step without `nodes` and `procs` has one process.

With `widths` the step's needs are those on the least of them; what a node holds is the same at every width, so that on twice
as many nodes stand twice as many ranks. With `streams` the command runs so many times, `procs` of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cantle.model.resources import Needs
from cantle.model.study import MOST_STREAMS, Step

from .findings import Findings, did_you_mean
from .quantities import clock, duration_s, is_tidy_clock, memory_mib, walltime_s

COUNTS = {
    "nodes": 1,
    "procs": 1,
    "cores per task": 1,
    "tasks per rs": 1,
    "rs per node": 1,
    "cpus per rs": 1,
    "gpus": 0,
    "gpus per task": 0,
    "retries": 0,
    "streams": 1,
}
MOST_COUNT = 1_000_000_000
"""More than there is of anything."""
MOST = {"streams": MOST_STREAMS}
TEXTS = ("bind", "bind gpus", "reservation", "qos", "partition", "kind")

# Flux's urgencies 0 to 31 with 16 in the middle, on a scale on which a step that says nothing has 0.
PRIORITIES = {"held": -16, "minimal": -15, "low": -7, "medium": 0, "high": 8, "expedited": 15, "expedite": 15}


class Setting(NamedTuple):
    """A setting as it stands in the file: `value` with tokens expanded as far as they do not vary."""

    value: Any
    text: str
    line: int
    key: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a step asks for. Counts that were not given are 0."""

    nodes: int = 0
    procs: int = 0
    cores_per_task: int = 0
    tasks_per_rs: int = 0
    rs_per_node: int = 0
    cpus_per_rs: int = 0
    gpus: int = 0
    gpus_per_task: int = 0
    retries: int = 0
    bind: str = ""
    bind_gpus: str = ""
    reservation: str = ""
    qos: str = ""
    walltime: str = ""
    walltime_s: float = 0.0
    exclusive: bool = False
    exclusive_launcher: bool = False
    memory_mib: int = 0
    named: tuple[tuple[str, int], ...] = ()
    priority: float = 0.0
    widths: tuple[int, ...] = ()
    times_s: tuple[float, ...] = ()
    streams: int = 0
    communicates: bool = False
    partition: str = ""
    kind: str = ""
    staged: bool = False
    local: tuple[str, ...] = ()

    @property
    def scheduled(self) -> bool:
        """Whether Maestro would hand the step to the batch system."""
        return bool(self.nodes or self.procs)

    @property
    def ranks(self) -> int:
        """Processes of the whole step: `procs`, one a node when only nodes are named, else one."""
        return self.procs or self.nodes or 1

    def at(self, width: int) -> Settings:
        """The same for a run on so many nodes, where the step leaves that open: each node holds as many as before."""
        if not self.widths:
            return self
        procs = self.procs * width // (self.nodes or self.widths[0])
        return msgspec.structs.replace(self, nodes=width, procs=procs)

    @property
    def needs(self) -> Needs:
        """What is needed on each node."""
        least = self.at(self.widths[0]) if self.widths else self
        nodes = least.nodes or 1
        of_one = self.cores_per_task or self.cpus_per_rs or 1
        here = math.ceil(least.ranks / nodes)
        cores = here * of_one
        if self.communicates and not self.procs:
            cores = math.ceil(self.streams / nodes) * of_one
        return Needs(
            cores=cores,
            nodes=nodes,
            gpus=max(self.gpus, here * self.gpus_per_task),
            memory_mib=self.memory_mib,
            named=self.named,
            kind=self.kind,
            whole_nodes=self.exclusive,
            staged=self.staged or bool(self.local),
        )

    def step(self, name: str, description: str, restartable: bool) -> Step:
        """The plan half of a step with these settings."""
        return Step(
            name=name,
            needs=self.needs,
            description=description,
            walltime_s=self.walltime_s,
            retries=self.retries,
            restartable=restartable,
            priority=self.priority,
            ranks=self.at(self.needs.nodes).ranks if (self.scheduled or self.widths) and not self.streams else 0,
            cores_per_rank=self.cores_per_task or self.cpus_per_rs or 1,
            widths=self.widths,
            times_s=self.times_s,
            streams=self.streams,
            communicates=self.communicates,
            partition=self.partition,
            local=self.local,
        )


def settings_of(
    settings: dict[str, Setting], apply: Callable[[str], str], hours_first: bool, retries: int, findings: Findings
) -> Settings:
    """The settings of one combination, whose values `apply` puts into a text. `retries` is for steps that say nothing."""
    found: dict[str, Any] = {"retries": retries}
    named: list[tuple[str, int]] = []
    for key, setting in settings.items():
        value = apply(setting.value) if isinstance(setting.value, str) else setting.value
        if key in COUNTS:
            found[key.replace(" ", "_")] = count_of(setting, value, COUNTS[key], findings, MOST.get(key, MOST_COUNT))
        elif key in TEXTS:
            found[key.replace(" ", "_")] = str(value)
        elif key.startswith("resources."):
            number = count_of(setting, value, 1, findings)
            named.append((key.removeprefix("resources."), number))
        elif key == "stage":
            found["staged"] = True
        elif key == "local":
            found["local"] = tuple(filter(None, str(value).split(",")))
        elif key == "walltime":
            found["walltime"], found["walltime_s"] = _walltime(setting, value, hours_first, findings)
        elif key in ("exclusive", "exclusive_launcher", "communicates"):
            found[key] = _yes(setting, value, findings)
        elif key == "memory":
            found["memory_mib"] = _measured(setting, value, memory_mib, "'4 GB' or '512 MiB'", findings)
        elif key == "priority":
            found["priority"] = _priority(setting, value, findings)
        elif key == "widths":
            from .widths import widths_of

            found["widths"], found["times_s"] = widths_of(str(value), setting.line, setting.key, findings)
    if named:
        found["named"] = tuple(sorted(named))
    result = Settings(**found)
    if result.staged and (result.nodes > 1 or result.widths or result.streams):
        wide = settings["stage"]
        findings.wrong(wide.line, wide.key, "files are staged for steps on one node alone", "use a shared file system")
    if result.local and (result.nodes > 1 or result.widths or result.streams):
        wide = settings["local"]
        findings.wrong(wide.line, wide.key, "only steps on one node leave files there", "use a shared file system")
    if result.widths or result.streams or result.communicates:
        from .widths import contradictions

        contradictions(result, settings, findings)
    return result


def count_of(setting: Setting, value: Any, least: int, findings: Findings, most: int = MOST_COUNT) -> int:
    """A whole number from `least` to `most`; the nearest with the problem noted otherwise."""
    number = value
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 1000:
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        _wrong(setting, value, "a whole number", findings)
    elif number < least:
        findings.wrong(setting.line, setting.key, f"is {number}, but must be at least {least}", _origin(setting, value))
    elif number > most:
        what, mend = too_many(number, most)
        findings.wrong(setting.line, setting.key, what, mend if most == MOST_STREAMS else _origin(setting, value))
        return most
    else:
        return number
    return least


def too_many(number: int, most: int) -> tuple[str, str]:
    """What to say of more streams than there can be: (what, mend)."""
    if number > 10**30:
        return f"is far too large: it must be at most {most:,}", "let each stream do more of the work"
    return f"is {number:,}, but must be at most {most:,}", "let each stream do more of the work"


def estimate_of(setting: Setting, value: Any, findings: Findings) -> float:
    """Seconds; 0 with the problem noted when it is no duration."""
    return float(_measured(setting, value, duration_s, "'90 s', '5 min' or '1:30:00'", findings))


def _measured(setting: Setting, value: Any, measure: Callable[[str], Any], form: str, findings: Findings) -> Any:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return measure(str(value))
    except ValueError:
        pass
    _wrong(setting, value, form, findings)
    return 0


def _walltime(setting: Setting, value: Any, hours_first: bool, findings: Findings) -> tuple[str, float]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        _wrong(setting, value, "a walltime, '01:30:00' say", findings)
        return "", 0.0
    text = str(value).strip()
    try:
        seconds = walltime_s(text, hours_first=hours_first)
    except ValueError:
        _wrong(setting, value, "a walltime, '01:30:00' say", findings)
        return "", 0.0
    if not isinstance(value, str) and seconds:
        meant = clock(seconds)
        findings.odd(setting.line, setting.key, f"{value} means minutes to a batch system, {meant}; better write that")
    as_it_is = not text.strip("0123456789") or is_tidy_clock(text) or not seconds
    return (text if as_it_is else clock(seconds)), seconds


def _yes(setting: Setting, value: Any, findings: Findings) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no"):
        return value.lower() in ("true", "yes")
    _wrong(setting, value, "true or false", findings)
    return False


def _priority(setting: Setting, value: Any, findings: Findings) -> float:
    if isinstance(value, str) and value.lower() in PRIORITIES:
        if value.lower() == "held":
            findings.odd(setting.line, setting.key, "nobody would release a held step here, so it merely comes last")
        return PRIORITIES[value.lower()] / 31
    try:
        if not isinstance(value, bool) and abs(float(value)) <= MOST_COUNT:  # which nan is not
            return float(value) - 0.5
    except (TypeError, ValueError, OverflowError):
        pass
    mend = did_you_mean(str(value).lower(), PRIORITIES)
    _wrong(setting, value, "a number or one of held, minimal, low, medium, high, expedited", findings, mend)
    return 0.0


def _wrong(setting: Setting, value: Any, wanted: str, findings: Findings, mend: str = "") -> None:
    shown = "nothing" if value is None else repr(value)
    findings.wrong(setting.line, setting.key, f"must be {wanted}, not {shown}", mend or _origin(setting, value))


def _origin(setting: Setting, value: Any) -> str:
    if isinstance(value, str) and "$(" in value:
        return f"{value} is no variable or parameter of this study"
    return f"it comes from {setting.text}" if setting.text != str(value) and "$(" in setting.text else ""
