"""What do parameter generators written for Maestro import?

The parts of `maestrowf` that a generator's file uses, under the same names: `ParameterGenerator`, `Combination`,
`Variable`, and an environment with `find`. They stand in `sys.modules` only while the generator runs, so that no Maestro
need be installed, and an installed one is neither imported nor disturbed.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any


class Variable(str):
    """A named value: text that also has Maestro's `name`, `value` and `token`."""

    __slots__ = ("name", "token", "value")
    name: str
    token: str
    value: Any

    def __new__(cls, name: str, value: Any, token: str = "$") -> Variable:
        """A variable is the text of its value."""
        made = super().__new__(cls, str(value))
        made.name, made.value, made.token = name, value, token
        return made

    def get_var(self) -> str:
        """The token that stands for it."""
        return f"{self.token}({self.name})"

    def substitute(self, data: str) -> str:
        """The text with its token replaced."""
        return data.replace(self.get_var(), str(self.value))


class StudyEnvironment:
    """The variables of a study, for a generator to look at."""

    def __init__(self, variables: Mapping[str, Any] | None = None) -> None:
        self.substitutions = {name: Variable(name, value) for name, value in (variables or {}).items()}

    def find(self, key: str) -> Variable | None:
        """The variable of this name, or None."""
        return self.substitutions.get(key)

    def add(self, item: Variable) -> None:
        """Add a variable for later `find`s of the generator itself."""
        self.substitutions[item.name] = item

    def remove(self, key: str) -> Variable | None:
        """Take a variable out, for later `find`s of the generator itself."""
        return self.substitutions.pop(key, None)

    def apply_environment(self, item: str) -> str:
        """The text with the tokens of all variables replaced."""
        for variable in self.substitutions.values():
            item = variable.substitute(item)
        return item


class Combination:
    """One combination of parameters."""

    def __init__(self, token: str = "$") -> None:
        self._token = token
        self._params: dict[str, Any] = {}
        self._labels: dict[str, Any] = {}
        self._names: dict[str, Any] = {}

    def add(self, key: str, name: str, value: Any, label: str) -> None:
        """Set one parameter of the combination."""
        self._params[f"{self._token}({key})"] = value
        self._labels[f"{self._token}({key}.label)"] = label
        self._names[f"{self._token}({key}.name)"] = name

    def __str__(self) -> str:
        return ".".join(str(label) for label in self._labels.values())

    def get_param_string(self, params: Sequence[str]) -> str:
        """The labels of these parameters, sorted by key, joined by dots."""
        return ".".join(str(self._labels[f"{self._token}({key}.label)"]) for key in sorted(params))

    def get_param_values(self, params: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Pairs of key and value."""
        for key in params:
            yield key, self._params[f"{self._token}({key})"]

    def apply(self, item: str) -> str:
        """The text with this combination's tokens replaced."""
        for texts in (self._labels, self._params, self._names):
            for token, value in texts.items():
                item = item.replace(token, str(value))
        return item


class ParameterGenerator:
    """Collects parameters; iterating it gives the combinations."""

    def __init__(self, token: str = "$", ltoken: str = "%%") -> None:
        self.parameters: dict[str, Any] = {}
        self.labels: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.label_token = ltoken
        self.token = token
        self.length = 0

    def add_parameter(
        self, key: str, values: Sequence[Any], label: str | Sequence[str] | None = None, name: str | None = None
    ) -> None:
        """Add a parameter. Raises ValueError when its values are more or fewer than those of the others."""
        if self.length and len(values) != self.length:
            raise ValueError(f"{key} has {len(values)} values, but the parameters before it have {self.length}")
        self.length = len(values)
        self.parameters[key] = values
        self.labels[key] = label or f"{key}.{self.label_token}"
        self.names[key] = name or key

    def __bool__(self) -> bool:
        return bool(self.parameters)

    def __iter__(self) -> Iterator[Combination]:
        return self.get_combinations()

    def get_combinations(self) -> Iterator[Combination]:
        """Combination i takes element i of each parameter."""
        for i in range(self.length):
            combination = Combination(self.token)
            for key, values in self.parameters.items():
                label = self.labels[key]
                text = label.replace(self.label_token, str(values[i])) if isinstance(label, str) else label[i]
                combination.add(key, self.names[key], values[i], text)
            yield combination


def csvtable_to_dict(fstream: IO[str]) -> dict[str, list[str]]:
    """The columns of a plain comma-separated table with a header."""
    header, *rows = [line.rstrip("\n").split(",") for line in fstream]
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


_MODULES: dict[str, dict[str, Any]] = {
    "maestrowf": {},
    "maestrowf.datastructures": {},
    "maestrowf.datastructures.core": {
        "ParameterGenerator": ParameterGenerator,
        "Combination": Combination,
        "StudyEnvironment": StudyEnvironment,
    },
    "maestrowf.datastructures.core.parameters": {"ParameterGenerator": ParameterGenerator, "Combination": Combination},
    "maestrowf.datastructures.environment": {"Variable": Variable},
    "maestrowf.utils": {"csvtable_to_dict": csvtable_to_dict},
}


@contextmanager
def standing_in() -> Iterator[None]:
    """While this lasts, `import maestrowf...` gives these classes."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "maestrowf"}
    for name in before:
        del sys.modules[name]
    for name, contents in _MODULES.items():
        module = types.ModuleType(name)
        module.__path__ = []
        module.__dict__.update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "maestrowf"]:
            del sys.modules[name]
        sys.modules.update(before)
