"""Which instances do the steps become, and what does each wait for?

A step is expanded by the parameters of its own texts, of all that it waits for without a funnel, and by those that a funnel
keeps apart (`same`). An instance waits for the parents' instances of its own combination, and by a funnel for all instances of
a step, or for those of them that have the same values of these parameters.
"""

from __future__ import annotations

from array import array

import msgspec

from cantle.model.study import Step, Task

from .findings import Findings, did_you_mean
from .instance_names import Namer, safe
from .settings import Settings, settings_of
from .steps import Dependence, StepPlan
from .tokens import Parameters
from .variants import Variants


class Expansion(msgspec.Struct):
    """The instances of a study.

    `steps` has one entry for each variant of a step's settings; `plan_of[v]` and `settings[v]` belong to variant v.
    `combination[t]` is the combination of task t, -1 for none; `instances[name]` the task for each combination, or the
    only one. `launches` is, for each step, the most processes that a launcher in its scripts starts.
    """

    steps: list[Step] = []
    tasks: list[Task] = []
    plan_of: list[StepPlan] = []
    settings: list[Settings] = []
    combination: array[int] = msgspec.field(default_factory=lambda: array("i"))
    instances: dict[str, array[int]] = {}
    launches: dict[str, int] = {}


class _Waits(msgspec.Struct, frozen=True, gc=False):
    """What an instance waits for: tasks that must succeed, and tasks that only have to be over."""

    parents: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Expander:
    """Expands steps, one after another, in an order in which each comes after all that it waits for.

    `retries` is for steps that say nothing themselves; with `hours_first` walltimes of two fields are hours and minutes.
    """

    def __init__(
        self, parameters: Parameters, hashws: bool, hours_first: bool, retries: int, findings: Findings
    ) -> None:
        self.parameters = parameters
        self.hashws = hashws
        self.hours_first = hours_first
        self.retries = retries
        self.findings = findings
        self.result = Expansion()
        self._namer = Namer(parameters, hashws, findings)
        self._plans: dict[str, StepPlan] = {}
        self._groups: dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], set[int]]] = {}

    def expand(self, plans: list[StepPlan]) -> Expansion:
        """All instances of these steps."""
        result = self.result
        for plan in plans:
            self._plans[plan.name] = plan
            self._namer.check_step(plan)
            plan.own = self.parameters.used_in(plan.texts)
            funnels = plan.funnels
            awaited = {dependence.parent for dependence in plan.depends if not dependence.funnel}
            awaited.update(name for name in plan.refers_to if name not in funnels)
            plan.used = plan.own.union(*(self._plans[name].used for name in awaited), self._kept_apart(plan))
            variants = Variants(plan, self.parameters, self.hours_first, self.retries, self.findings)
            if plan.used:
                self._expand(plan, variants)
            else:
                result.instances[plan.name] = array("i", [len(result.tasks)])
                self._add(variants, -1, plan.name, safe(plan.name), "", self._waits(plan.depends, -1))
            result.steps += [variant.step for variant in variants.made]
            result.settings += [variant.settings for variant in variants.made]
            result.plan_of += [plan] * len(variants.made)
            result.launches[plan.name] = max((variant.launches for variant in variants.made), default=0)
        self._check_unique()
        return result

    def check(self, plans: list[StepPlan]) -> None:
        """Note what is wrong with settings that do not vary, where the steps cannot be expanded."""
        for plan in plans:
            constant = {
                key: setting
                for key, setting in plan.settings.items()
                if not (isinstance(setting.value, str) and "$(" in setting.value)
            }
            settings_of(constant, str, self.hours_first, self.retries, self.findings)

    def _expand(self, plan: StepPlan, variants: Variants) -> None:
        names = self._namer.names(plan)
        count = self.parameters.count
        instances = self.result.instances[plan.name] = array("i", bytes(4 * count))
        chosen = [i for i in range(count) if names.first[i] == i]
        waits = self._waits_of(plan, chosen)
        folder = safe(plan.name)
        width = len(str(len(chosen) - 1))
        tasks = self.result.tasks
        for number, i in enumerate(chosen):
            instances[i] = len(tasks)
            leaf = f"{folder}_instance_{number:0{width}d}" if self.hashws else names.folders[i]
            name = f"{plan.name}_{names.suffixes[i]}"
            self._add(variants, i, name, f"{folder}/{leaf}", names.params[i], waits[number])
        for i in range(count):
            instances[i] = instances[names.first[i]]

    def _add(self, variants: Variants, combination: int, name: str, workspace: str, params: str, waits: _Waits) -> None:
        step = len(self.result.steps) + variants.number(combination)
        estimate = variants.estimate_s(combination)
        self.result.tasks.append(Task(name, step, waits.parents, estimate, waits.after, workspace, params))
        self.result.combination.append(combination)

    def _waits(self, depends: list[Dependence], combination: int) -> _Waits:
        parents: set[int] = set()
        after: set[int] = set()
        for dependence in depends:
            instances = self.result.instances[dependence.parent]
            into = after if dependence.completed else parents
            if dependence.funnel:
                into.update(self._alike(dependence, combination) if dependence.same else instances)
            else:
                into.add(instances[0 if len(instances) == 1 else combination])
        return _Waits(tuple(sorted(parents)), tuple(sorted(after - parents)))

    def _waits_of(self, plan: StepPlan, chosen: list[int]) -> list[_Waits]:
        """What the chosen combinations wait for; what is the same for all of them is worked out once."""
        varying = [d for d in plan.depends if (d.same or not d.funnel) and len(self.result.instances[d.parent]) > 1]
        fixed = self._waits([d for d in plan.depends if d not in varying], -1)
        if not varying:
            return [fixed] * len(chosen)
        if len(plan.depends) == 1 and not varying[0].completed and not varying[0].funnel:
            instances = self.result.instances[varying[0].parent]
            return [_Waits((instances[i],)) for i in chosen]
        waits = []
        for i in chosen:
            own = self._waits(varying, i)
            parents = {*fixed.parents, *own.parents}
            after = {*fixed.after, *own.after} - parents
            waits.append(_Waits(tuple(sorted(parents)), tuple(sorted(after))))
        return waits

    def _kept_apart(self, plan: StepPlan) -> set[str]:
        """The parameters by which the step is expanded since a funnel of its keeps them apart. What is none is noted."""
        found: set[str] = set()
        known = self.parameters.by_key
        for dependence in plan.depends:
            for key in dependence.same:
                place = f"{dependence.key.rpartition('.')[0]}.same"
                if key not in known:
                    mend = did_you_mean(key, known) or f"parameters are {', '.join(known) or 'none'}"
                    self.findings.wrong(dependence.line, place, f"there is no parameter {key!r}", mend)
                elif key not in self._plans[dependence.parent].used:
                    what = f"{dependence.parent} does not vary with {key}, so there is nothing to keep apart"
                    used = [name for name in known if name in self._plans[dependence.parent].used]
                    mend = f"it varies with {', '.join(used)}" if used else "leave `same` out"
                    self.findings.wrong(dependence.line, place, what, mend)
                else:
                    found.add(key)
        return found

    def _alike(self, dependence: Dependence, combination: int) -> set[int]:
        """The parent's instances that have the values of this combination in what the funnel keeps apart."""
        known = [self.parameters.by_key[key].values for key in dependence.same if key in self.parameters.by_key]
        groups = self._groups.get((dependence.parent, dependence.same))
        if groups is None:
            groups = self._groups[dependence.parent, dependence.same] = {}
            for i, task in enumerate(self.result.instances[dependence.parent]):
                groups.setdefault(tuple(values[i] for values in known), set()).add(task)
        return groups.get(tuple(values[combination] for values in known), set())

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
