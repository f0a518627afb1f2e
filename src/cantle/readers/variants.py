"""How many kinds of instance does a step have, by what they ask for?

Where settings vary (`procs: $(P)`), combinations that ask for the same share one variant: one `Step` of the plan, and the
`Settings` that its script is written with.
"""

from __future__ import annotations

from typing import NamedTuple

from cantle.model.study import Step

from .findings import Findings
from .launcher import NAME, brackets, complaints, processes
from .settings import Settings, estimate_of, settings_of
from .steps import StepPlan
from .tokens import Parameters


class Variant(NamedTuple):
    """One kind of instance. `launches` is the most processes that a launcher in its scripts starts, 0 without one."""

    step: Step
    settings: Settings
    launches: int


class Variants:
    """The variants of one step, made as combinations ask for them."""

    def __init__(
        self, plan: StepPlan, parameters: Parameters, hours_first: bool, retries: int, findings: Findings
    ) -> None:
        self.plan = plan
        self.made: list[Variant] = []
        self._parameters = parameters
        self._hours_first = hours_first
        self._retries = retries
        self._findings = findings
        self._scripts = {key: text for key, text in (("cmd", plan.cmd), ("restart", plan.restart)) if NAME in text}
        parts = [part for script in self._scripts.values() for part in brackets(script)]
        texts = [setting.value for setting in plan.settings.values() if isinstance(setting.value, str)]
        used = parameters.used_in([*texts, *parts])
        # A value that holds another parameter's token may lead anywhere: then every parameter counts.
        self._varying = parameters.all if parameters.nested else [parameters.by_key[key] for key in sorted(used)]
        self._known: dict[tuple[str, ...], int] = {}
        self._alike: dict[Variant, int] = {}
        self._estimates: dict[object, float] = {}

    def number(self, combination: int) -> int:
        """Which of `made` this combination is (-1: none), made if need be."""
        key: tuple[str, ...] = ()
        if combination >= 0 and self._varying:
            key = tuple([texts[combination] for p in self._varying for texts in (p.values, p.labels)])
        number = self._known.get(key)
        if number is None:
            variant = self._make(combination)
            number = self._known[key] = self._alike.setdefault(variant, len(self.made))
            if number == len(self.made):
                self.made.append(variant)
        return number

    def estimate_s(self, combination: int) -> float:
        """Seconds that this combination is expected to take; 0 where nobody said."""
        setting = self.plan.estimate
        if setting is None:
            if "widths" in self.plan.settings:  # then the time on the least of them
                times_s = self.made[self.number(combination)].settings.times_s
                return times_s[0] if times_s else 0.0
            return 0.0
        value = self._apply(setting.value, combination) if isinstance(setting.value, str) else setting.value
        if value not in self._estimates:
            self._estimates[value] = estimate_of(setting, value, self._findings)
        return self._estimates[value]

    def _apply(self, text: str, combination: int) -> str:
        return self._parameters.apply(text, combination) if combination >= 0 else text

    def _make(self, combination: int) -> Variant:
        plan = self.plan
        settings = settings_of(
            plan.settings, lambda text: self._apply(text, combination), self._hours_first, self._retries, self._findings
        )
        launches = 0
        narrow, wide = (settings.at(settings.widths[i]) if settings.widths else settings for i in (0, -1))
        for key, script in self._scripts.items():
            parts = [self._apply(part, combination) for part in brackets(script)]
            wrong = complaints(parts, narrow)
            for what in wrong:
                self._findings.wrong(plan.line, f"{plan.key}.run.{key}", what)
            if not wrong:
                launches = max(launches, processes(script, parts, wide))
        return Variant(settings.step(plan.name, plan.description, bool(plan.restart)), settings, launches)
