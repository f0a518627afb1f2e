"""What does one step say? Its texts, what it waits for, and its settings, with everything replaced that does not vary.

Besides Maestro's keys a step's `run` may have Cantle's own: `retries`, `estimate`, `memory`, `resources`, `env`, `widths`,
`streams`, `communicates`, `partition`, `kind`, `stage`, any number as `priority`, and conditions in `depends`. They may as well
stand under `cantle: {steps: {NAME: ...}}` at the top, so that Maestro still reads the file; what stands there wins, and is
added to `depends`, `env` and `resources`.
"""

from __future__ import annotations

import re

import msgspec

from cantle.model.study import Slicing

from .findings import Findings, did_you_mean
from .settings import COUNTS, TEXTS, Setting
from .shape import is_kind, only, required_text
from .specification import Specification
from .tokens import TOKEN, Environment
from .yaml_nodes import Item

OWN_KEYS = (
    "retries",
    "depends",
    "estimate",
    "memory",
    "resources",
    "priority",
    "env",
    "widths",
    "streams",
    "communicates",
    "partition",
    "kind",
    "gpus per task",
    "stage",
    "local",
)
_IGNORED = ("pre", "post", "nested", "waitable")
_MAESTRO_KEYS = ("cmd", "depends", "restart", *_IGNORED, *COUNTS, *TEXTS, "walltime", "exclusive", "priority")
RUN_KEYS = tuple(dict.fromkeys((*_MAESTRO_KEYS, *OWN_KEYS)))
_MERLIN = {
    "task_queue": "",
    "max_retries": "; Cantle's key is `retries`",
    "retry_delay": "",
    "shell": "; the shell is said once, as `batch.shell`",
    "vars": "",
    "slurm": "",
    "flux": "",
    "launch_pre": "",
    "launch_args": "",
}
_CONDITIONS = ("all-succeeded", "all-completed")
_FUNNEL = re.compile(r"_\*|\*")
_WORKSPACE = re.compile(r"\$\(([^\s$()]+)\.workspaces?\)", re.ASCII)  # ten times as fast to compile


class Dependence(msgspec.Struct, frozen=True):
    """A step waits for another: for its own combination, or for all of them (`funnel`); for success, or only the end.

    `same`: of all of them only those in which these parameters have the values that they have in its own.
    """

    parent: str
    funnel: bool
    completed: bool
    line: int
    key: str
    same: tuple[str, ...] = ()


class StepPlan(msgspec.Struct):
    """A step, with everything replaced that does not vary between combinations.

    `refers_to` lists steps whose workspaces the script names; `own` and `used` are keys of parameters: those in the step's
    own texts, and those by which it is expanded.
    """

    index: int
    name: str
    line: int
    key: str
    description: str = ""
    cmd: str = ""
    restart: str = ""
    depends: list[Dependence] = []
    refers_to: list[str] = []
    settings: dict[str, Setting] = {}
    estimate: Setting | None = None
    env: dict[str, str | None] = {}
    stage_in: list[str] = []
    stage_out: list[str] = []
    local: list[str] = []
    texts: list[str] = []
    own: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()

    @property
    def funnels(self) -> set[str]:
        """The steps of which this one awaits all instances."""
        return {dependence.parent for dependence in self.depends if dependence.funnel}


def plans_of(spec: Specification, environment: Environment, findings: Findings) -> list[StepPlan]:
    """All steps of the study in the order of the file, without those that have no name."""
    plans: dict[str, StepPlan] = {}
    for index, item in enumerate(spec.steps):
        key = f"study[{index}]"
        if not isinstance(item.value, dict):
            findings.wrong(item.line, key, f"must be a mapping, not {item.kind}")
            continue
        plan = _Reader(item, index, key, environment, findings, spec.slicing).plan(spec.own_steps)
        if plan.name in plans:
            what = f"the name {plan.name!r} is taken by the step in line {plans[plan.name].line}"
            findings.wrong(plan.line, f"{key}.name", what, "Maestro drops the second one without a word; rename one")
        elif plan.name:
            plans[plan.name] = plan
    for name, own in spec.own_steps.items():
        if name not in plans:
            mend = did_you_mean(name, plans) or f"steps are {', '.join(plans)}"
            findings.wrong(own.line, f"cantle.steps.{name}", "is no step of this study", mend)
    for plan in plans.values():
        plan.refers_to = _references(plan, list(plans), findings)
    return list(plans.values())


def _references(plan: StepPlan, names: list[str], findings: Findings) -> list[str]:
    text = " ".join(
        [plan.cmd, plan.restart, *(value for value in plan.env.values() if value), *plan.stage_in, *plan.local]
    )
    if ".workspace" not in text:
        return []
    for name in _WORKSPACE.findall(text):
        if name not in names:
            what = f"$({name}.workspace): there is no step {name!r}"
            findings.wrong(plan.line, f"{plan.key}.run", what, did_you_mean(name, names))
    named = set(_WORKSPACE.findall(text))
    return [name for name in names if name != plan.name and name in named]


class _Reader:
    """Reads one step."""

    def __init__(
        self,
        item: Item,
        index: int,
        key: str,
        environment: Environment,
        findings: Findings,
        slicing: Slicing | None = None,
    ) -> None:
        self.item = item
        self.slicing = slicing
        self.environment = environment
        self.findings = findings
        self.plan_ = StepPlan(index, "", item.line, key)

    def plan(self, own_steps: dict[str, Item]) -> StepPlan:
        plan, findings = self.plan_, self.findings
        for key in self.item.mapping:
            if key not in ("name", "description", "run"):
                self.unknown(self.item, key, plan.key, ("name", "description", "run"))
        plan.name = self.environment.apply(required_text(self.item, "name", plan.key, findings))
        plan.line = self.item.lines.get("name", self.item.line)
        plan.description = self.environment.apply(required_text(self.item, "description", plan.key, findings))
        plan.texts += [plan.name, plan.description]
        run = self.item.mapping.get("run")
        if run is None:
            findings.wrong(self.item.line, f"{plan.key}.run", "is missing", "a step has `run` with at least `cmd`")
        elif not isinstance(run.value, dict):
            findings.wrong(run.line, f"{plan.key}.run", f"must be a mapping, not {run.kind}")
        else:
            self.run(run, f"{plan.key}.run", RUN_KEYS)
            plan.cmd = self.environment.apply(required_text(run, "cmd", f"{plan.key}.run", findings))
        own = own_steps.get(plan.name)
        if own is not None:
            place = f"cantle.steps.{plan.name}"
            if isinstance(own.value, dict):
                self.run(own, place, OWN_KEYS)
            elif own.value is not None:
                findings.wrong(own.line, place, f"must be a mapping, not {own.kind}")
        return plan

    def unknown(self, item: Item, key: str, place: str, known: tuple[str, ...]) -> None:
        if key in _MERLIN:
            mend = f"a Merlin extension{_MERLIN[key]}"
        elif key in RUN_KEYS and known == ("name", "description", "run"):
            mend = "it belongs under `run`"
        else:
            mend = did_you_mean(key, known) or f"known are {', '.join(known)}"
        self.findings.wrong(item.lines[key], f"{place}.{key}", "is not known here", mend)

    def run(self, run: Item, place: str, known: tuple[str, ...]) -> None:
        """Read the keys of `run`, or of the step's entry in Cantle's own block."""
        for key, item in run.mapping.items():
            path = f"{place}.{key}"
            if key not in known:
                self.unknown(run, key, place, known)
                continue
            self.plan_.texts += self.texts(item)
            if key == "depends":
                self.depends(item, path)
            elif key == "restart":
                self.plan_.restart = self.environment.apply(required_text(run, key, place, self.findings))
            elif key in ("pre", "post", *TEXTS):
                text = self.environment.apply(required_text(run, key, place, self.findings))
                if key in TEXTS:
                    self.plan_.settings[key] = Setting(text, item.text, item.line, path)
            elif key in ("nested", "waitable"):
                if not isinstance(item.value, bool):
                    self.findings.wrong(item.line, path, f"must be true or false, not {item.kind}")
            elif key == "estimate":
                self.plan_.estimate = self.setting(item, path)
            elif key == "exclusive" and isinstance(item.value, dict):
                only(item, ("allocation", "launcher"), path, self.findings)
                for part, name in (("allocation", "exclusive"), ("launcher", "exclusive_launcher")):
                    if part in item.mapping:
                        self.plan_.settings[name] = self.setting(item.mapping[part], f"{path}.{part}")
            elif key == "resources":
                for name, child in self.entries(item, path).items():
                    self.plan_.settings[f"resources.{name}"] = self.setting(child, f"{path}.{name}")
            elif key == "env":
                self.env(item, path)
            elif key == "stage":
                self.stage(item, path)
            elif key == "local":
                self.local(item, path)
            elif key == "widths":
                self.widths(item, path)
            elif key == "streams" and item.value is True:
                self.streams(item, path)
            elif key != "cmd":
                self.plan_.settings[key] = self.setting(item, path)

    def widths(self, item: Item, path: str) -> None:
        from .widths import as_text

        text = as_text(item)
        if text is None:
            mend = "write [1, 2, 4], or with times {1: 8 min, 2: 5 min, 4: 3 min}"
            self.findings.wrong(item.line, path, f"must list numbers of nodes, not {item.kind}", mend)
            return
        text = self.environment.apply(text)
        self.plan_.texts.append(text)
        self.plan_.settings["widths"] = Setting(text, text, item.line, path)

    def streams(self, item: Item, path: str) -> None:
        """As many as the study says for all of its steps."""
        streams = self.slicing.streams if self.slicing is not None else 0
        if streams:
            self.plan_.settings["streams"] = Setting(streams, item.text, item.line, path)
        else:
            self.findings.wrong(
                item.line, path, "the study does not say how many", "say it here, or as `cantle.streams`"
            )

    def stage(self, item: Item, path: str) -> None:
        """Which files are brought to where the step runs, and back: `in` by path, `out` by name in the workspace."""
        if not isinstance(item.value, dict):
            self.findings.wrong(item.line, path, f"must be a mapping, not {item.kind}", "write {in: [...], out: [...]}")
            return
        only(item, ("in", "out"), path, self.findings)
        for key, found in (("in", self.plan_.stage_in), ("out", self.plan_.stage_out)):
            child = item.mapping.get(key)
            if child is None or not is_kind(child, list, f"{path}.{key}", self.findings):
                continue
            for i, entry in enumerate(child.value):
                place = f"{path}.{key}[{i}]"
                if not isinstance(entry.value, str) or not entry.value:
                    self.findings.wrong(entry.line, place, f"must be the name of a file, not {entry.kind}")
                elif key == "out" and (entry.value.startswith("/") or ".." in entry.value.split("/")):
                    what = f"{entry.value} lies outside of the step's workspace"
                    self.findings.wrong(entry.line, place, what, "what is brought back is named as it lies there")
                else:
                    found.append(self.environment.apply(entry.value))
        self.plan_.settings["stage"] = Setting("", "", item.line, path)

    def local(self, item: Item, path: str) -> None:
        """Which files stay on the node where the step runs: by name in its workspace, or by their whole path."""
        for i, entry in enumerate(item.value if is_kind(item, list, path, self.findings) else ()):
            place = f"{path}[{i}]"
            if not isinstance(entry.value, str) or not entry.value:
                self.findings.wrong(entry.line, place, f"must be the name of a file, not {entry.kind}")
            elif ".." in entry.value.split("/") or any(letter in entry.value for letter in "*?["):
                mend = "name each file as it lies in the workspace, or by its whole path"
                self.findings.wrong(entry.line, place, f"{entry.value} does not name one file there", mend)
            else:
                self.plan_.local.append(self.environment.apply(entry.value))
        self.plan_.texts += self.plan_.local
        self.plan_.settings["local"] = Setting(",".join(self.plan_.local), "", item.line, path)

    def setting(self, item: Item, path: str) -> Setting:
        value = self.environment.apply(item.value) if isinstance(item.value, str) else item.value
        if isinstance(value, dict | list):
            value = item.kind
        return Setting(value, item.text, item.line, path)

    def entries(self, item: Item, path: str) -> dict[str, Item]:
        if not isinstance(item.value, dict):
            self.findings.wrong(item.line, path, f"must be a mapping, not {item.kind}")
        return item.mapping

    def env(self, item: Item, path: str) -> None:
        for name, child in self.entries(item, path).items():
            if not name or "=" in name or "\0" in name:
                self.findings.wrong(item.lines[name], f"{path}.{name}", "cannot be the name of an environment variable")
            elif isinstance(child.value, dict | list):
                what = f"must be text or a number, not {child.kind}"
                self.findings.wrong(child.line, f"{path}.{name}", what, "nothing at all (~) removes the variable")
            elif child.value is None:
                self.plan_.env[name] = None
            else:
                # As it stands in the file: 1.10 stays 1.10, true stays true.
                self.plan_.env[name] = self.environment.apply(child.text)

    def texts(self, item: Item) -> list[str]:
        """All texts in this value, with the environment applied: parameters in any of them make the step vary."""
        if isinstance(item.value, str):
            return [self.environment.apply(item.value)]
        children = item.value.values() if isinstance(item.value, dict) else item.value
        return [text for child in children for text in self.texts(child)] if isinstance(item.value, dict | list) else []

    def depends(self, item: Item, path: str) -> None:
        if isinstance(item.value, dict):
            if "step" in item.mapping:
                self.conditional(item, path, "step")
            else:
                self.conditional(item, path, "steps")
            return
        if not isinstance(item.value, list):
            self.findings.wrong(item.line, path, f"must be a list of steps, not {item.kind}", "write [] for none")
            return
        for i, entry in enumerate(item.value):
            place = f"{path}[{i}]"
            if isinstance(entry.value, dict):
                self.conditional(entry, place, "step")
            else:
                self.depend(entry, place, completed=False)

    def conditional(self, item: Item, path: str, name: str) -> None:
        only(item, (name, "condition", "same"), path, self.findings)
        condition = item.mapping.get("condition", Item(_CONDITIONS[0], item.line))
        if condition.value not in _CONDITIONS:
            mend = did_you_mean(condition.text, _CONDITIONS) or f"known are {' and '.join(_CONDITIONS)}"
            self.findings.wrong(condition.line, f"{path}.condition", f"{condition.text!r} is no condition", mend)
        named = item.mapping.get(name)
        if named is None:
            self.findings.wrong(item.line, f"{path}.{name}", "is missing", "name what is waited for")
            return
        same = self.same(item.mapping["same"], f"{path}.same") if "same" in item.mapping else ()
        entries = named.value if isinstance(named.value, list) and name == "steps" else [named]
        for entry in entries:
            self.depend(entry, f"{path}.{name}", condition.value == _CONDITIONS[1], same)

    def same(self, item: Item, path: str) -> tuple[str, ...]:
        """The parameters that a funnel keeps apart: one, or a list."""
        entries = item.value if isinstance(item.value, list) else [item]
        for entry in entries:
            if not isinstance(entry.value, str) or not entry.value:
                mend = "write {step: simulate_*, same: [SIZE]}"
                self.findings.wrong(entry.line, path, f"must name parameters, not {entry.kind}", mend)
                return ()
        return tuple(dict.fromkeys(entry.value for entry in entries))

    def depend(self, entry: Item, path: str, completed: bool, same: tuple[str, ...] = ()) -> None:
        if not isinstance(entry.value, str | int | float) or isinstance(entry.value, bool):
            self.findings.wrong(entry.line, path, f"must be the name of a step, not {entry.kind}")
            return
        name = self.environment.apply(entry.text)
        dependence = Dependence(_FUNNEL.sub("", name), "*" in name, completed, entry.line, path, same)
        if same and not dependence.funnel:
            mend = f"write {name}_*; without it the step waits for its own combination alone"
            self.findings.wrong(
                entry.line, path, f"{name!r} is no funnel, for which alone `same` means something", mend
            )
        for i, other in enumerate(self.plan_.depends):
            if (other.parent, other.funnel) == (dependence.parent, dependence.funnel):
                if path.startswith("cantle."):
                    self.plan_.depends[i] = dependence
                else:
                    self.findings.wrong(entry.line, path, f"{name!r} is listed twice", "once is enough")
                return
        self.plan_.depends.append(dependence)


def warn_of_near_misses(plans: list[StepPlan], known: list[str], findings: Findings) -> None:
    """Note tokens that nobody knows but that look much like a known one: the shell would run them as commands."""
    for plan in plans:
        for text in (plan.cmd, plan.restart):
            for name in TOKEN.findall(text):
                stem, _, tail = name.partition(".")
                strange = name not in known and not (stem in known and tail in ("label", "name"))
                if strange and re.fullmatch(r"[A-Z][A-Z0-9_]{2,}(\.\w+)?", name):
                    from difflib import get_close_matches

                    near = get_close_matches(stem, known, n=1, cutoff=0.55)
                    if near:
                        what = f"$({name}) is no name of this study, so the shell runs it as a command; is $({near[0]}) meant?"
                        findings.odd(plan.line, f"{plan.key}.run", what)
