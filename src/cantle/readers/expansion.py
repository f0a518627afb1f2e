"""Which instances do the steps become, and what does each wait for?

A step is expanded by the parameters of its own texts and of all that it waits for without a funnel. Instances are named
after the labels of those parameters, sorted by key; combinations with the same labels are the same instance. Where they
have the same labels but different values, runs would be lost, so that is a problem here.
"""

from __future__ import annotations

import re
from array import array

import msgspec

from cantle.model.study import Step, Task

from .findings import Findings
from .launcher import NAME, brackets, complaints, processes
from .settings import Setting, Settings, estimate_of, settings_of
from .steps import StepPlan, setting_texts
from .tokens import Parameters

_UNSAFE = re.compile(r"[^-_.() a-zA-Z0-9]")
_LONGEST_NAME = 255
_LONGEST_ENDING = len(".restart.slurm.sh.partial")


def safe(text: str) -> str:
    """The text as one component of a path: unusual characters dropped, blanks made underscores."""
    return _UNSAFE.sub("", text).replace(" ", "_")


class Names(msgspec.Struct):
    """How combinations are told apart by some parameters: per combination, which one stands for it and what it is called.

    `first[i]` is the first combination with the labels of combination i. The other lists are filled at those alone.
    """

    first: array[int]
    suffixes: list[str]
    folders: list[str]
    params: list[str]


class Expansion(msgspec.Struct):
    """The instances of a study.

    `steps` has one entry for each variant of a step's settings; `plan_of[v]` and `settings[v]` belong to variant v.
    `combination[t]` is the combination of task t, -1 for none; `instances[name]` the task for each combination, or the
    only one. `launches` is, for each step whose script has a launcher, the most processes that one of them starts.
    """

    steps: list[Step] = []
    tasks: list[Task] = []
    plan_of: list[StepPlan] = []
    settings: list[Settings] = []
    combination: array[int] = msgspec.field(default_factory=lambda: array("i"))
    instances: dict[str, array[int]] = {}
    launches: dict[str, int] = {}


class Expander:
    """Expands steps, one after another, in an order in which each comes after all that it waits for."""

    def __init__(
        self, parameters: Parameters, hashws: bool, hours_first: bool, retries: int, findings: Findings
    ) -> None:
        self.parameters = parameters
        self.hashws = hashws
        self.hours_first = hours_first
        self.retries = retries
        self.findings = findings
        self.result = Expansion()
        self._names: dict[frozenset[str], Names] = {}
        self._plans: dict[str, StepPlan] = {}

    def expand(self, plans: list[StepPlan]) -> Expansion:
        """All instances of these steps."""
        for plan in plans:
            self._plans[plan.name] = plan
            plan.own = self.parameters.used_in(plan.texts)
            funnels = plan.funnels
            awaited = {dependence.parent for dependence in plan.depends if not dependence.funnel}
            awaited.update(name for name in plan.refers_to if name not in funnels)
            plan.used = plan.own.union(*(self._plans[name].used for name in awaited))
            self._check_name(plan)
            variants = _Variants(plan, self)
            if plan.used:
                self._expand(plan, variants)
            else:
                self.result.instances[plan.name] = array("i", [len(self.result.tasks)])
                parents, after = self._waits(plan, None)
                self._add(variants, -1, plan.name, safe(plan.name), "", parents, after)
        self._check_unique()
        return self.result

    def check(self, plans: list[StepPlan]) -> None:
        """Note what is wrong with settings that do not vary, where the steps cannot be expanded."""
        for plan in plans:
            constant = {
                key: s for key, s in plan.settings.items() if not (isinstance(s.value, str) and "$(" in s.value)
            }
            settings_of(constant, str, self.hours_first, self.retries, self.findings)

    def _expand(self, plan: StepPlan, variants: _Variants) -> None:
        names = self._names.get(plan.used)
        if names is None:
            names = self._names[plan.used] = self._name(plan)
        count = self.parameters.count
        instances = array("i", bytes(4 * count))
        self.result.instances[plan.name] = instances
        chosen = [i for i in range(count) if names.first[i] == i]
        waits = self._waits_by_combination(plan, chosen)
        folder = safe(plan.name)
        width = len(str(len(chosen) - 1))
        tasks = self.result.tasks
        for number, i in enumerate(chosen):
            instances[i] = len(tasks)
            leaf = f"{folder}_instance_{number:0{width}d}" if self.hashws else names.folders[i]
            parents, after = waits[number]
            name = f"{plan.name}_{names.suffixes[i]}"
            self._add(variants, i, name, f"{folder}/{leaf}", names.params[i], parents, after)
        for i in range(count):
            instances[i] = instances[names.first[i]]

    def _add(
        self,
        variants: _Variants,
        combination: int,
        name: str,
        workspace: str,
        params: str,
        parents: tuple[int, ...],
        after: tuple[int, ...],
    ) -> None:
        result = self.result
        estimate = variants.estimate(combination)
        step = variants.number(combination)
        result.tasks.append(Task(name, step, parents, estimate, after, workspace, params))
        result.combination.append(combination)

    def _waits(self, plan: StepPlan, combination: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        parents: set[int] = set()
        after: set[int] = set()
        for dependence in plan.depends:
            instances = self.result.instances[dependence.parent]
            into = after if dependence.completed else parents
            if dependence.funnel:
                into.update(instances)
            else:
                into.add(instances[0 if combination is None or len(instances) == 1 else combination])
        return tuple(sorted(parents)), tuple(sorted(after - parents))

    def _waits_by_combination(self, plan: StepPlan, chosen: list[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        single = [self.result.instances[d.parent] for d in plan.depends if not d.funnel]
        if all(len(instances) == 1 for instances in single):
            return [self._waits(plan, None)] * len(chosen)
        if len(plan.depends) == 1 and not plan.depends[0].completed:
            return [((single[0][i],), ()) for i in chosen]
        shared = msgspec.structs.replace
        constant = [d for d in plan.depends if d.funnel or len(self.result.instances[d.parent]) == 1]
        varying = [d for d in plan.depends if d not in constant]
        fixed, fixed_after = self._waits(shared(plan, depends=constant), None)
        waits = []
        for i in chosen:
            more, more_after = self._waits(shared(plan, depends=varying), i)
            parents = {*fixed, *more}
            after = {*fixed_after, *more_after} - parents
            waits.append((tuple(sorted(parents)), tuple(sorted(after))))
        return waits

    def _name(self, plan: StepPlan) -> Names:
        """Names by the parameters that this step uses; labels that lose runs are noted."""
        chosen = [self.parameters.by_key[key] for key in sorted(plan.used)]
        count = self.parameters.count
        names = Names(array("i", bytes(4 * count)), [""] * count, [""] * count, [""] * count)
        seen: dict[str, int] = {}
        folders: dict[str, int] = {}
        suffixes = [".".join(parts) for parts in zip(*(parameter.labels for parameter in chosen), strict=True)]
        values = list(zip(*(parameter.values for parameter in chosen), strict=True))
        for i, suffix in enumerate(suffixes):
            other = seen.setdefault(suffix, i)
            names.first[i] = other
            if other != i:
                if values[other] != values[i]:
                    self._same(plan, suffix, other, i, "have the same label")
                continue
            names.suffixes[i] = suffix
            names.params[i] = ";".join([f"{p.key}:{v}" for p, v in zip(chosen, values[i], strict=True)])
            folder = names.folders[i] = suffix if not _UNSAFE.search(suffix) and " " not in suffix else safe(suffix)
            if self.hashws:
                continue
            if folders.setdefault(folder, i) != i:
                self._same(plan, folder, folders[folder], i, "would share the directory")
            elif folder in ("", ".", ".."):
                self._tell(plan, f"the label {suffix!r} leaves {folder!r} as the name of a directory")
            elif len(folder) + len(plan.name) + 1 > _LONGEST_NAME - _LONGEST_ENDING:
                self._tell(
                    plan, f"the labels make a name of {len(suffix)} characters, too long for a file: {suffix[:60]}..."
                )
        return names

    def _same(self, plan: StepPlan, label: str, one: int, other: int, what: str) -> None:
        for key in sorted(plan.used):
            parameter = self.parameters.by_key[key]
            if parameter.values[one] != parameter.values[other]:
                pair = f"{parameter.values[one]!r} and {parameter.values[other]!r} of {key} {what} {label!r}"
                self._tell(plan, f"the values {pair}, so runs would be lost", key)
                return
        self._tell(plan, f"combinations {one + 1} and {other + 1} {what} {label!r}")

    def _tell(self, plan: StepPlan, what: str, key: str = "") -> None:
        key = key or min(plan.used)
        line = self.parameters.by_key[key].line
        self.findings.wrong(
            line, f"global.parameters.{key}.label", what, "use labels that differ in letters and digits, or --hashws"
        )

    def _check_name(self, plan: StepPlan) -> None:
        folder = safe(plan.name)
        if folder in ("", ".", "..", ".cantle"):
            what = f"the name {plan.name!r} makes {folder!r} of the step's directory"
            self.findings.wrong(plan.line, f"{plan.key}.name", what, "use letters and digits")
        elif len(folder) > _LONGEST_NAME - _LONGEST_ENDING:
            what = f"a name of {len(folder)} characters is too long for a file"
            self.findings.wrong(plan.line, f"{plan.key}.name", what, "shorten it")
        for other in self._plans.values():
            if other is not plan and safe(other.name) == folder:
                what = f"{plan.name!r} and {other.name!r} would share the directory {folder!r}"
                self.findings.wrong(plan.line, f"{plan.key}.name", what, "rename one")

    def _check_unique(self) -> None:
        tasks = self.result.tasks
        if len({task.name for task in tasks}) == len(tasks):
            return
        seen: dict[str, Task] = {}
        for task in tasks:
            other = seen.setdefault(task.name, task)
            if other is not task:
                plan, first = (self.result.plan_of[t.step] for t in (task, other))
                what = f"steps {first.name!r} and {plan.name!r} both have an instance {task.name!r}"
                self.findings.wrong(plan.line, f"{plan.key}.name", what, "rename one")


class _Variants:
    """The variants of one step's settings, made as combinations ask for them."""

    def __init__(self, plan: StepPlan, expander: Expander) -> None:
        self.plan = plan
        self.expander = expander
        self.scripts = [script for script in (plan.cmd, plan.restart) if NAME in script]
        parameters = expander.parameters
        parts = [part for script in self.scripts for part in brackets(script)]
        texts = [*setting_texts(plan), *parts]
        keys = parameters.used_in(texts)
        self.varying = [parameters.by_key[key] for key in sorted(keys)] if not parameters.nested else parameters.all
        self.known: dict[tuple[str, ...], int] = {}
        self.alike: dict[tuple[Step, Settings], int] = {}
        self.estimates: dict[str, float] = {}

    def number(self, combination: int) -> int:
        """The number, in the expansion, of the variant for this combination."""
        key: tuple[str, ...] = ()
        if combination >= 0 and self.varying:
            key = tuple([t[combination] for p in self.varying for t in (p.values, p.labels)])
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = self.make(combination)
        return number

    def estimate(self, combination: int) -> float:
        """Seconds that this combination is expected to take; 0 where nobody said."""
        setting: Setting | None = self.plan.estimate
        if setting is None:
            return 0.0
        value = self.apply(setting.value, combination) if isinstance(setting.value, str) else setting.value
        if repr(value) not in self.estimates:
            self.estimates[repr(value)] = estimate_of(setting, value, self.expander.findings)
        return self.estimates[repr(value)]

    def apply(self, text: str, combination: int) -> str:
        return self.expander.parameters.apply(text, combination) if combination >= 0 else text

    def make(self, combination: int) -> int:
        plan, expander = self.plan, self.expander
        settings = settings_of(
            plan.settings,
            lambda text: self.apply(text, combination),
            expander.hours_first,
            expander.retries,
            expander.findings,
        )
        result = expander.result
        for script in self.scripts:
            parts = [self.apply(part, combination) for part in brackets(script)]
            wrong = complaints(parts, settings)
            for what in wrong:
                key = f"{plan.key}.run.{'cmd' if script is plan.cmd else 'restart'}"
                expander.findings.wrong(plan.line, key, what)
            if not wrong:
                most = processes(script, parts, settings)
                result.launches[plan.name] = max(most, result.launches.get(plan.name, 0))
        step = settings.step(plan.name, plan.description, bool(plan.restart))
        number = self.alike.get((step, settings))
        if number is None:
            number = self.alike[step, settings] = len(result.steps)
            result.steps.append(step)
            result.settings.append(settings)
            result.plan_of.append(plan)
        return number
