"""What does hosts.yml say about hosts? Each entry becomes a `Host`; what is wrong is told with its file, line and key.

defaults:                     # what holds for each host that says nothing else
  python: ~/venv/bin/python
hosts:
  server1: {address: me@server1.example.org, cores: 16, kind: gpu}
  node[01-16]:
    address: "{name}-ib"      # {name} is the host's own
    modules: [gcc/13, openmpi]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import replace

from cantle.allocations.hosts.host import Environment, Host
from cantle.allocations.hosts.words import names_of
from cantle.errors import RequestError

from .findings import Findings, did_you_mean
from .quantities import memory_mib
from .shape import is_kind, only
from .yaml_nodes import Item, parse

_TOP = ("hosts", "defaults")
_KEYS = (
    "address",
    "cores",
    "gpus",
    "memory",
    "kind",
    "machine",
    "resources",
    "modules",
    "source",
    "setup",
    "env",
    "environment",
    "copy",
    "directory",
    "python",
    "container",
)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def hosts_in(files: Sequence[Path], environment: Environment = "inherit") -> dict[str, Host]:
    """The hosts of these files, by name; the first file that has one counts. `environment` is for those that say nothing.

    Raises StudyError with all that is wrong, RequestError when a file cannot be read.
    """
    known: dict[str, Host] = {}
    for file in files:
        for name, host in _hosts_of(file, environment).items():
            known.setdefault(name, host)
    return known


def _hosts_of(file: Path, environment: Environment) -> dict[str, Host]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is no text"
        raise RequestError(f"cannot read {file}: {why}") from None
    findings = Findings(str(file))
    root = parse(text, findings, "it lists hosts under `hosts`")
    known: dict[str, Host] = {}
    if root is not None and is_kind(root, dict, "", findings):
        only(root, _TOP, "", findings)
        reader = _Reader(file.parent, findings)
        base = reader.host(root.mapping.get("defaults"), "defaults", Host(name="", environment=environment))
        hosts = root.mapping.get("hosts")
        if hosts is None or hosts.value is None:
            findings.wrong(root.line, "hosts", "there are none", "list them: hosts: {server1: {cores: 4}}")
        elif is_kind(hosts, dict, "hosts", findings):
            for word, item in hosts.mapping.items():
                _entry(word, item, hosts.lines[word], base, known, reader)
    findings.raise_if_wrong()
    return known


def _entry(word: str, item: Item, line: int, base: Host, known: dict[str, Host], reader: _Reader) -> None:
    place = f"hosts.{word}"
    try:
        names = names_of(word)
    except RequestError as problem:
        reader.findings.wrong(line, place, str(problem).removeprefix(f"-j {word}: "))
        return
    host = reader.host(item, place, base)
    for name in names:
        if name in known:
            reader.findings.wrong(line, place, f"{name} stands here and before", "keep one")
        address = (host.address or name).replace("{name}", name)
        known[name] = replace(host, name=name, address=address)


class _Reader:
    """Reads the entries of one file. Paths are relative to its folder."""

    def __init__(self, folder: Path, findings: Findings) -> None:
        self.folder = folder
        self.findings = findings

    def host(self, item: Item | None, place: str, base: Host) -> Host:
        """The host that this entry makes of `base`."""
        if item is None or item.value is None or not is_kind(item, dict, place, self.findings):
            return base
        only(item, _KEYS, place, self.findings)
        said: dict[str, Any] = {}
        for key, child in item.mapping.items():
            path = f"{place}.{key}"
            if key in ("cores", "gpus"):
                said[key] = self.number(child, path, 1 if key == "cores" else 0)
            elif key == "memory":
                said["memory_mib"] = self.memory(child, path)
            elif key == "resources":
                said["named"] = self.resources(child, path)
            elif key in ("modules", "source", "setup"):
                said[key] = self.texts(child, path)
            elif key == "env":
                said["env"] = {**base.env, **self.variables(child, path)}
            elif key == "copy":
                said["copy"] = self.files(child, path)
            elif key == "container":
                said["container"] = self.container(child, path)
            elif key == "environment":
                said[key] = self.one_of(child, path, get_args(Environment))
            elif key in _KEYS:
                said[key] = self.text(child, path, _FORMS.get(key, _whatever))
        if said.get("copy") and not (said.get("directory") or base.directory):
            self.findings.wrong(item.lines["copy"], f"{place}.copy", "there is no `directory` to copy to", "name one")
        return replace(base, **{key: value for key, value in said.items() if value is not None})

    def number(self, item: Item, path: str, least: int) -> int | None:
        if isinstance(item.value, int) and not isinstance(item.value, bool) and item.value >= least:
            return item.value
        self.findings.wrong(
            item.line, path, f"must be a whole number, at least {least}, not {item.text or item.kind!r}"
        )
        return None

    def memory(self, item: Item, path: str) -> int | None:
        try:
            return memory_mib(item.text)
        except ValueError:
            self.findings.wrong(item.line, path, f"must be an amount as in '64 GB', not {item.text or item.kind!r}")
            return None

    def resources(self, item: Item, path: str) -> tuple[tuple[str, int], ...]:
        if not is_kind(item, dict, path, self.findings):
            return ()
        counts = {name: self.number(child, f"{path}.{name}", 1) for name, child in item.mapping.items()}
        return tuple(sorted((name, number) for name, number in counts.items() if number is not None))

    def texts(self, item: Item, path: str) -> tuple[str, ...]:
        entries = item.value if isinstance(item.value, list) else [item]
        found = [
            self.text(entry, path if entry is item else f"{path}[{i}]", _whatever) for i, entry in enumerate(entries)
        ]
        return tuple(text for text in found if text)

    def text(self, item: Item, path: str, fault: Callable[[str], str]) -> str | None:
        if item.value is None or isinstance(item.value, dict | list) or not item.text.strip():
            self.findings.wrong(item.line, path, f"must be text, not {item.kind}")
            return None
        if what := fault(item.text) or ("holds a NUL" if "\0" in item.text else ""):
            self.findings.wrong(item.line, path, what)
        return item.text

    def one_of(self, item: Item, path: str, known: tuple[str, ...]) -> str | None:
        if item.text in known:
            return item.text
        mend = did_you_mean(item.text, known) or f"known are {', '.join(known)}"
        self.findings.wrong(item.line, path, f"{item.text or item.kind!r} is not known here", mend)
        return None

    def variables(self, item: Item, path: str) -> dict[str, str]:
        if not is_kind(item, dict, path, self.findings):
            return {}
        found = {}
        for name, child in item.mapping.items():
            if not _VARIABLE.fullmatch(name):
                self.findings.wrong(item.lines[name], f"{path}.{name}", "cannot be the name of a variable")
            elif isinstance(child.value, dict | list) or child.value is None:
                self.findings.wrong(child.line, f"{path}.{name}", f"must be text or a number, not {child.kind}")
            else:
                found[name] = child.text
        return found

    def files(self, item: Item, path: str) -> tuple[str, ...]:
        found = []
        for text in self.texts(item, path):
            file = self.folder / Path(text).expanduser()
            if not file.exists():
                self.findings.wrong(item.line, path, f"there is no {file}", "paths count from the folder of this file")
            found.append(str(file))
        return tuple(found)

    def container(self, item: Item, path: str) -> tuple[str, ...]:
        if isinstance(item.value, list):
            return self.texts(item, path)
        try:
            return tuple(shlex.split(self.text(item, path, _whatever) or ""))
        except ValueError as problem:
            self.findings.wrong(item.line, path, f"cannot be split into words: {problem}")
            return ()


def _whatever(_: str) -> str:
    return ""


def _address(text: str) -> str:
    if text.startswith("-") or any(letter.isspace() for letter in text):
        return f"{text!r} cannot be the address of a host; write HOST or USER@HOST; ports and more are said in ~/.ssh/config"
    return ""


def _directory(text: str) -> str:
    return "" if text.startswith(("/", "~/")) or text == "~" else f"{text!r} must begin with / or ~/"


_FORMS: dict[str, Callable[[str], str]] = {"address": _address, "directory": _directory}
