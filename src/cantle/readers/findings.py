"""What is wrong with a file, and what is merely odd? Gathered, so that all of it is told at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cantle.errors import Problem, StudyError


class Findings:
    """The problems and warnings of one file, in the order in which they were found."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self._told: set[tuple[str, str]] = set()

    def wrong(self, line: int, key: str, what: str, mend: str = "") -> None:
        """Note a problem; the same one at the same place is noted once."""
        if (key, what) not in self._told:
            self._told.add((key, what))
            self.problems.append(Problem(self.file, line, key, what, mend))

    def odd(self, line: int, key: str, what: str) -> None:
        """Note a warning: it does not keep the study from running."""
        sentence = f"{self.file}:{line}: {key}: {what}"
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def raise_if_wrong(self) -> None:
        """Raise StudyError with all problems, by line; nothing when there are none."""
        if self.problems:
            raise StudyError(sorted(self.problems, key=lambda problem: problem.line))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'procs'?`, or "" when nothing known is near."""
    import difflib

    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not near:
        folded = {name.lower().replace("_", " "): name for name in names}
        near = [folded[match] for match in difflib.get_close_matches(word.lower().replace("_", " "), folded, n=1)]
    return f"did you mean '{near[0]}'?" if near else ""


def meant(key: str, unknown: Mapping[str, int]) -> str:
    """Of a key that is missing: `is 'stduy' in line 3 meant to be it?`, or "". `unknown`: keys nobody knows, their lines."""
    import difflib

    near = difflib.get_close_matches(key, unknown, n=1)
    return f"is '{near[0]}' in line {unknown[near[0]]} meant to be it?" if near else ""
