"""What are instances called, and in which directories do they work?

After the labels of the parameters by which a step varies, sorted by key and joined by dots. Combinations with the same
labels are the same instance. Where they have different values, or different names share a directory, runs would be lost
without a word: that is a problem.
"""

from __future__ import annotations

import re
from array import array

import msgspec

from .findings import Findings
from .steps import StepPlan
from .tokens import Parameters

_UNSAFE = re.compile(r"[^-_.() a-zA-Z0-9]")
_LONGEST = 255 - len(".restart.slurm.sh.partial")
_NO_FOLDERS = ("", ".", "..", ".cantle")


def safe(text: str) -> str:
    """The text as one component of a path: unusual characters dropped, blanks made underscores."""
    return _UNSAFE.sub("", text).replace(" ", "_")


class Names(msgspec.Struct):
    """How combinations are told apart by some parameters.

    `first[i]` is the first combination with the labels of combination i. The other lists are filled at those alone:
    the joined labels, the directory's name, and what varies as the status file has it.
    """

    first: array[int]
    suffixes: list[str]
    folders: list[str]
    params: list[str]


class Namer:
    """Names the instances of steps, and notes what would be lost by it."""

    def __init__(self, parameters: Parameters, hashws: bool, findings: Findings) -> None:
        self.parameters = parameters
        self.hashws = hashws
        self.findings = findings
        self._names: dict[frozenset[str], Names] = {}
        self._steps: dict[str, StepPlan] = {}

    def names(self, plan: StepPlan) -> Names:
        """The names of this step's instances; shared by all steps that vary by the same parameters."""
        names = self._names.get(plan.used)
        if names is None:
            names = self._names[plan.used] = self._make(plan)
        longest = max(names.folders, key=len)
        if not self.hashws and len(safe(plan.name)) + 1 + len(longest) > _LONGEST:
            self._tell(plan, f"the labels of {plan.name!r} make a name too long for a file: {longest[:60]}...")
        return names

    def check_step(self, plan: StepPlan) -> None:
        """Note it when the step has no directory of its own."""
        folder = safe(plan.name)
        other = self._steps.setdefault(folder, plan)
        if folder in _NO_FOLDERS:
            self._tell_step(
                plan, f"the name {plan.name!r} makes {folder!r} of the step's directory", "use letters and digits"
            )
        elif len(folder) > _LONGEST:
            self._tell_step(plan, f"a name of {len(folder)} characters is too long for a file", "shorten it")
        elif other is not plan:
            self._tell_step(
                plan, f"{other.name!r} and {plan.name!r} would share the directory {folder!r}", "rename one"
            )

    def _make(self, plan: StepPlan) -> Names:
        chosen = [self.parameters.by_key[key] for key in sorted(plan.used)]
        count = self.parameters.count
        names = Names(array("i", bytes(4 * count)), [""] * count, [""] * count, [""] * count)
        seen: dict[str, int] = {}
        folders: dict[str, int] = {}
        suffixes = [".".join(parts) for parts in zip(*(parameter.labels for parameter in chosen), strict=True)]
        values = list(zip(*(parameter.values for parameter in chosen), strict=True))
        for i, suffix in enumerate(suffixes):
            other = names.first[i] = seen.setdefault(suffix, i)
            if other != i:
                if values[other] != values[i]:
                    self._tell_pair(plan, suffix, other, i, "have the same label")
                continue
            names.suffixes[i] = suffix
            names.params[i] = ";".join([f"{p.key}:{v}" for p, v in zip(chosen, values[i], strict=True)])
            folder = names.folders[i] = suffix if not _UNSAFE.search(suffix) and " " not in suffix else safe(suffix)
            if self.hashws:
                continue
            if folders.setdefault(folder, i) != i:
                self._tell_pair(plan, folder, folders[folder], i, "would share the directory")
            elif folder in _NO_FOLDERS:
                self._tell(plan, f"the label {suffix!r} leaves {folder!r} as the name of a directory")
        return names

    def _tell_pair(self, plan: StepPlan, label: str, one: int, other: int, what: str) -> None:
        for key in sorted(plan.used):
            values = self.parameters.by_key[key].values
            if values[one] != values[other]:
                pair = f"{values[one]!r} and {values[other]!r} of {key} {what} {label!r}"
                self._tell(plan, f"the values {pair}, so runs would be lost", key)
                return
        self._tell(plan, f"combinations {one + 1} and {other + 1} {what} {label!r}")

    def _tell(self, plan: StepPlan, what: str, key: str = "") -> None:
        key = key or min(plan.used)
        line = self.parameters.by_key[key].line
        mend = "use labels that differ in letters and digits, or --hashws"
        self.findings.wrong(line, f"global.parameters.{key}.label", what, mend)

    def _tell_step(self, plan: StepPlan, what: str, mend: str) -> None:
        self.findings.wrong(plan.line, f"{plan.key}.name", what, mend)
