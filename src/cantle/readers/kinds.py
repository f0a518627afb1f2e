"""Which kinds of node are declared, and who brings nodes of each?

cantle:
    kinds:
        cpu: {cores: 64, max: 20, starts_in: 90 s, cost: 1, provider: slurm, queue: short, lasts: 4 h}
        gpu: {cores: 16, gpus: 4, max: 4, provider: slurm, constraint: a100}
        lab: {cores: 8, hosts: "server[1-9]"}
        cloud: {cores: 8, add: "./grow", remove: "./shrink"}
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from os.path import isfile
from pathlib import Path
from typing import Any

from cantle.allocations.hosts.words import places_of
from cantle.allocations.local import MOST_NODES as MOST_LOCAL
from cantle.allocations.providers.batch import JobOptions
from cantle.allocations.providers.declared import By, Declared
from cantle.errors import RequestError
from cantle.model.kinds import MOST_CORES, MOST_NODES, Kind
from cantle.plugins import find

from .findings import Findings, did_you_mean
from .quantities import duration_s, memory_mib
from .shape import is_kind, only
from .yaml_nodes import Item, parse

_SYSTEMS = ("slurm", "pbs", "lsf", "flux")
_MOST = {"cores": MOST_CORES, "gpus": MOST_CORES, "min": MOST_NODES, "max": MOST_NODES, "block": MOST_NODES}
_MOST_COST = 1e12
_PROVIDERS = ("local", *_SYSTEMS, "batch", "ssh", "own", "none", "module:class")
_OF_KIND: dict[str, tuple[str, str]] = {
    "cores": ("cores", "count"),
    "gpus": ("gpus", "whole"),
    "memory": ("memory_mib", "memory"),
    "resources": ("named", "resources"),
    "min": ("least", "whole"),
    "max": ("most", "count"),
    "starts_in": ("starts_in_s", "duration"),
    "cost": ("cost", "cost"),
    "lasts": ("lasts_s", "duration"),
    "block": ("block", "count"),
    "stays": ("stays_s", "duration"),
}
_OF_JOB = ("queue", "account", "reservation", "qos", "constraint")
_OF_PROVIDER: dict[By, tuple[str, ...]] = {
    "local": ("after",),
    "batch": (*_OF_JOB, "args", "whole_nodes", "setup"),
    "hosts": ("hosts",),
    "own": ("add", "remove", "timeout", "joins_within"),
    "plugin": (),
    "nobody": (),
}
_KEYS = (*_OF_KIND, "provider", *(key for keys in _OF_PROVIDER.values() for key in keys))


def kinds_in(text: str, name: str) -> tuple[Declared, ...]:
    """The kinds of a file, or of a text that stands for one; `name` is what it is called in messages.

    They stand at the top, or under `kinds`, or under `cantle.kinds`. Raises StudyError with all that is wrong.
    """
    findings = Findings(name)
    root = parse(text, findings, "it lists kinds of node: {cpu: {cores: 4, provider: local}}")
    found: tuple[Declared, ...] = ()
    if root is not None:
        block, place = root, "kinds"
        for key in ("cantle", "kinds"):
            inner = block.mapping.get(key)
            if inner is not None and isinstance(inner.value, dict) and "cores" not in inner.mapping:
                block, place = inner, "kinds" if key == "kinds" else place
        found = kinds_of(block, place, findings)
        if not found and not findings.problems:
            findings.wrong(1, place, "there is no kind", "write cpu: {cores: 4, provider: local}")
    findings.raise_if_wrong()
    return found


def kinds_in_words(word: str) -> tuple[Declared, ...]:
    """The kinds of what stands in a command line: a file, or the text itself. Raises StudyError, RequestError."""
    path = Path(word)
    if (":" in word or word.lstrip().startswith("{")) and not isfile(path):  # noqa: PTH113 - `is_file` fails on a long text
        return kinds_in(word, "--kinds")
    if not word.strip():
        raise RequestError("--kinds: names no file, and no kind: write kinds as in 'cpu: {cores: 4, provider: local}'")
    try:
        return kinds_in(path.read_text(encoding="utf-8-sig"), word)
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is no text"
        raise RequestError(
            f"--kinds: cannot read {word}: {why}. Name a file, or write kinds as in 'cpu: {{cores: 4, provider: local}}'"
        ) from None


def elasticity_in(study: Path) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
    """The kinds that a study declares under `cantle.kinds`, and what it says under `cantle.scaling`; nothing, mostly.

    Raises StudyError with all that is wrong with them. What cannot be read is the affair of whoever reads the study.
    """
    try:
        data = study.read_bytes()
    except OSError:
        return (), ()
    aside, findings = Findings(str(study)), Findings(str(study))
    root = parse(data.decode("utf-8", "replace"), aside, "it is a study")
    own = root.mapping.get("cantle") if root is not None else None
    if own is None or not isinstance(own.value, dict):
        return (), ()
    kinds = kinds_of(own.mapping["kinds"], "cantle.kinds", findings) if "kinds" in own.mapping else ()
    words = scaling_of(own, findings)
    findings.raise_if_wrong()
    return kinds, words


def scaling_of(own: Item, findings: Findings) -> tuple[str, ...]:
    """The words under `scaling`, one or a list, each as after --scaling. What is no word is noted."""
    item = own.mapping.get("scaling")
    if item is None:
        return ()
    entries = item.value if isinstance(item.value, list) else [item]
    words = []
    for i, entry in enumerate(entries):
        if isinstance(entry.value, str):
            words.append(entry.text)
        else:
            place = f"cantle.scaling[{i}]" if isinstance(item.value, list) else "cantle.scaling"
            mend = "write [payoff, 'idle=60s'], as after --scaling"
            findings.wrong(entry.line, place, f"must be a policy or a bound, not {entry.text or entry.kind}", mend)
    return tuple(words)


def kinds_of(block: Item, place: str, findings: Findings) -> tuple[Declared, ...]:
    """The kinds in this mapping of name to what is said of it, in the order of the file. What is wrong is noted."""
    if block.value is None or not is_kind(block, dict, place, findings):
        return ()
    found = []
    for name, item in block.mapping.items():
        path = f"{place}.{name}"
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or not name.isascii():
            findings.wrong(block.lines[name], path, "cannot be the name of a kind", "letters, digits, -, _ and . can")
        elif is_kind(item, dict, path, findings):
            found.append(_Reader(item, path, findings).declared(name))
    return tuple(found)


def _is_installed(name: str) -> bool:
    """Whether some package declares a provider of this name."""
    try:
        find("providers", name)
    except RequestError:
        return False
    return True


class _Reader:
    """Reads what is said of one kind."""

    def __init__(self, item: Item, place: str, findings: Findings) -> None:
        self._item = item
        self._place = place
        self._findings = findings

    def declared(self, name: str) -> Declared:
        """The kind, with who brings it."""
        only(self._item, _KEYS, self._place, self._findings)
        by, system = self._provider()
        said: dict[str, Any] = {}
        for key, (field, form) in _OF_KIND.items():
            child = self._item.mapping.get(key)
            if child is not None and (value := _FORMS[form](self, child, f"{self._place}.{key}")) is not None:
                said[field] = value
        if "cores" not in self._item.mapping:
            self._wrong(self._item, "cores", "is missing", "say how many cores a node of it has")
        said.setdefault("cores", 1)
        kind = Kind(name, **said, provider=system or by)
        if kind.most and kind.least > kind.most:
            self._wrong(self._item.mapping["min"], "min", f"{kind.least} is more than max, {kind.most}")
        if kind.most and kind.block > kind.most:
            what = f"{kind.block} at a time are more than max, {kind.most}: none could ever come"
            self._wrong(self._item.mapping["block"], "block", what)
        self._check_numbers(by, kind)
        self._check_keys(by)
        job = JobOptions(
            **{key: self._text(key) for key in _OF_JOB},
            extra=self._words("args"),
            whole_nodes=self._item.mapping["whole_nodes"].value is True
            if "whole_nodes" in self._item.mapping
            else False,
            setup=self._commands("setup"),
        )
        return Declared(
            kind,
            by,
            system,
            job,
            hosts=self._hosts() if by == "hosts" else (),
            add=self._text("add"),
            remove=self._text("remove"),
            after_s=self._seconds("after"),
            patience_s=self._seconds("timeout"),
            joins_s=self._seconds("joins_within"),
        )

    def _provider(self) -> tuple[By, str]:
        """Who brings nodes, and the batch system's name."""
        item = self._item.mapping.get("provider")
        if item is None:
            if "hosts" in self._item.mapping:
                return "hosts", ""
            return ("own", "") if "add" in self._item.mapping else ("nobody", "")
        word = item.text
        if word in _SYSTEMS:
            return "batch", word
        if ":" in word:
            return "plugin", word
        if word not in _PROVIDERS and _is_installed(word):
            return "plugin", word
        if word not in _PROVIDERS:
            mend = did_you_mean(word, _PROVIDERS) or f"known are {', '.join(_PROVIDERS)}"
            self._wrong(item, "provider", f"{word or item.kind!r} is no provider", mend)
        names: dict[str, By] = {"local": "local", "batch": "batch", "ssh": "hosts", "own": "own"}
        return names.get(word, "nobody"), ""

    def _check_keys(self, by: By) -> None:
        """Note what another provider would need, and what this one lacks."""
        for other, keys in _OF_PROVIDER.items():
            for key in keys:
                if other != by and key in self._item.mapping:
                    mend = "say which: provider: slurm" if other == "batch" and by == "nobody" else "leave it out"
                    self._wrong(self._item.mapping[key], key, "means nothing to the provider of this kind", mend)
        needed = {"hosts": "hosts", "own": "add"}.get(by)
        if needed and needed not in self._item.mapping:
            self._wrong(self._item, needed, "is missing", f"the provider needs it: {needed}: ...")

    def _check_numbers(self, by: By, kind: Kind) -> None:
        """Note numbers larger than anything that could be meant."""
        for key, most in _MOST.items():
            value = getattr(kind, _OF_KIND[key][0])
            if value > most:
                self._wrong(self._item.mapping[key], key, f"{value:,} are more than the {most:,} that there can be")
            elif by == "local" and most == MOST_NODES and value > MOST_LOCAL:
                why = "into which one machine is dealt out, since each has a runner process of its own"
                self._wrong(self._item.mapping[key], key, f"{value:,} are more than the {MOST_LOCAL:,} {why}")

    def _hosts(self) -> tuple[str, ...]:
        words = self._words("hosts")
        try:
            if places_of(words).here is not None:
                raise RequestError("-j : a number stands for cores of this machine, which is no host of a pool")
        except RequestError as problem:
            self._wrong(self._item.mapping["hosts"], "hosts", str(problem).removeprefix("-j ").lstrip(": "))
        return words

    def _words(self, key: str) -> tuple[str, ...]:
        item = self._item.mapping.get(key)
        if item is None:
            return ()
        if isinstance(item.value, list) and not any(isinstance(each.value, dict | list) for each in item.value):
            return tuple(each.text for each in item.value)
        try:
            return tuple(shlex.split(self._text(key)))
        except ValueError as problem:
            self._wrong(item, key, f"cannot be split into words: {problem}")
            return ()

    def _commands(self, key: str) -> tuple[str, ...]:
        """One command line, or a list of them."""
        item = self._item.mapping.get(key)
        if item is not None and isinstance(item.value, list):
            if all(isinstance(each.value, str) and each.value.strip() for each in item.value):
                return tuple(each.text for each in item.value)
            self._wrong(item, key, "must list commands, each of them text", "write [module load gcc, export A=1]")
            return ()
        return (text,) if (text := self._text(key)) else ()

    def _text(self, key: str) -> str:
        item = self._item.mapping.get(key)
        if item is None:
            return ""
        if item.value is None or isinstance(item.value, dict | list) or not item.text.strip():
            self._wrong(item, key, f"must be text, not {item.kind}")
        return item.text

    def _seconds(self, key: str) -> float:
        item = self._item.mapping.get(key)
        return (self.duration(item, f"{self._place}.{key}") or 0.0) if item is not None else 0.0

    def count(self, item: Item, path: str) -> int | None:
        """A whole number, 1 or more."""
        return self.whole(item, path, 1)

    def whole(self, item: Item, path: str, least: int = 0) -> int | None:
        """A whole number."""
        if isinstance(item.value, int) and not isinstance(item.value, bool) and item.value >= least:
            return item.value
        what = f"must be a whole number, {least} or more, not {item.text or item.kind}"
        self._findings.wrong(item.line, path, what)
        return None

    def cost(self, item: Item, path: str) -> float | None:
        """A number that is not negative."""
        if isinstance(item.value, int | float) and not isinstance(item.value, bool) and 0 <= item.value <= _MOST_COST:
            return float(item.value)
        self._findings.wrong(item.line, path, f"must be a number, 0 or more, not {item.text or item.kind}")
        return None

    def duration(self, item: Item, path: str) -> float | None:
        """Seconds."""
        try:
            return duration_s(item.text)
        except ValueError:
            self._findings.wrong(
                item.line, path, f"must be a duration as in '90 s' or '4 h', not {item.text or item.kind}"
            )
            return None

    def memory(self, item: Item, path: str) -> int | None:
        """MiB."""
        try:
            return memory_mib(item.text)
        except ValueError:
            self._findings.wrong(item.line, path, f"must be an amount as in '64 GB', not {item.text or item.kind}")
            return None

    def resources(self, item: Item, path: str) -> tuple[tuple[str, int], ...]:
        """Further things of a node, with their numbers."""
        if not is_kind(item, dict, path, self._findings):
            return ()
        counts = {name: self.count(child, f"{path}.{name}") for name, child in item.mapping.items()}
        return tuple(sorted((name, number) for name, number in counts.items() if number is not None))

    def _wrong(self, item: Item, key: str, what: str, mend: str = "") -> None:
        self._findings.wrong(item.line, f"{self._place}.{key}", what, mend)


_FORMS: dict[str, Callable[[_Reader, Item, str], Any]] = {
    "count": _Reader.count,
    "whole": lambda reader, item, path: reader.whole(item, path),
    "cost": _Reader.cost,
    "duration": _Reader.duration,
    "memory": _Reader.memory,
    "resources": _Reader.resources,
}
