"""What do `$(NAME)` tokens stand for?

Names of the environment (variables, labels, dependencies, SPECROOT) are expanded to a fixpoint: a label may use any other,
wherever it is listed; one that leads back to itself is a problem. Parameters come after, one combination at a time: labels,
then values, then names, each replaced in the order in which the parameters are listed. A token that nobody knows stays as
it is, because `$(hostname)` is the shell's affair and `$(CXX)` make's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

TOKEN = re.compile(r"\$\(([^()$\n]+)\)")
_MOST_PASSES = 50


class CircularError(Exception):
    """A name's text leads back to the name; `names` is the way, first and last alike."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        super().__init__(" -> ".join(names))


class Environment:
    """The names that do not vary, each with its text."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._texts: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def names(self) -> Iterable[str]:
        """All names, in the order of the file."""
        return self._values

    def circles(self) -> list[list[str]]:
        """Each way from a name back to itself, once. Names on such a way stay as they stand from then on."""
        found = []
        for name in self._values:
            try:
                self.apply(f"$({name})")
            except CircularError as error:
                found.append(error.names)
                for circular in error.names:
                    self._texts[circular] = f"$({circular})"
        return found

    def apply(self, text: str) -> str:
        """The text with every known name replaced. Raises CircularError (never after `circles` has been asked)."""
        return self._expand(text, ()) if "$(" in text else text

    def _expand(self, text: str, trail: tuple[str, ...]) -> str:
        for _ in range(_MOST_PASSES):
            fresh = TOKEN.sub(lambda match: self._text(match, trail), text)
            if fresh == text:
                break
            text = fresh
        return text

    def _text(self, match: re.Match[str], trail: tuple[str, ...]) -> str:
        name = match[1]
        if name not in self._values:
            return match[0]
        if name not in self._texts:
            if name in trail:
                raise CircularError([*trail[trail.index(name) :], name])
            self._texts[name] = self._expand(self._values[name], (*trail, name))
        return self._texts[name]


class Parameter(msgspec.Struct):
    """What varies: the text of its value and its label in each combination. `line` is 0 when a generator made it."""

    key: str
    name: str
    values: list[str]
    labels: list[str]
    line: int = 0


class Parameters:
    """All parameters of a study; combination i takes element i of each."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.all = parameters
        self.by_key = {parameter.key: parameter for parameter in parameters}
        self.count = len(parameters[0].values) if parameters else 0
        keys = "|".join(re.escape(key) for key in self.by_key)
        self._use = re.compile(rf"\$\(({keys})(?:\.\w+)?\)") if keys else None
        self.nested = any(
            self._use and self._use.search(text)
            for parameter in parameters
            for texts in (parameter.values, parameter.labels)
            for text in texts
            if "$(" in text
        )

    def used_in(self, texts: Iterable[str]) -> frozenset[str]:
        """The keys of the parameters that these texts use."""
        if not self._use:
            return frozenset()
        return frozenset(key for text in texts if "$(" in text for key in self._use.findall(text))

    def apply(self, text: str, combination: int) -> str:
        """The text for one combination."""
        if "$(" in text:
            for parameter in self.all:
                text = text.replace(f"$({parameter.key}.label)", parameter.labels[combination])
            for parameter in self.all:
                text = text.replace(f"$({parameter.key})", parameter.values[combination])
            for parameter in self.all:
                text = text.replace(f"$({parameter.key}.name)", parameter.name)
        return text
