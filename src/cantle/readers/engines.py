"""Which engines does a study bring for its partitions, and is there each that a partition wants?

cantle:
    engines:
        mydb: {head: "mydb serve --port {port}", worker: "mydb join {head}", ready: "listening", env: {MYDB: "{head}"}}
    partitions:
        calc: {nodes: 4, engine: mydb}
"""

from __future__ import annotations

from typing import Any

from cantle.engines.hosted.commands import NAMES, PORT, filled
from cantle.errors import CantleError
from cantle.model.study import EngineCommands, PartitionWish
from cantle.plugins import OURS, find

from .findings import Findings, did_you_mean
from .quantities import duration_s
from .shape import is_kind, only
from .yaml_nodes import Item

KEYS = ("head", "worker", "ready", "worker_ready", "retire", "env", "within")
_COMMANDS = ("head", "worker", "retire")
_ANY = dict.fromkeys(NAMES, "1")


def engines_of(block: Item, place: str, findings: Findings) -> tuple[EngineCommands, ...]:
    """The engines in this mapping of name to commands, in the order of the file. What is wrong is noted."""
    if block.value is None or not is_kind(block, dict, place, findings):
        return ()
    found = []
    for name, item in block.mapping.items():
        path = f"{place}.{name}"
        if not name or not name.isprintable() or ":" in name:
            findings.wrong(block.lines[name], path, "cannot be the name of an engine", "letters and digits, say")
        elif is_kind(item, dict, path, findings):
            found.append(_engine(name, item, path, findings))
    return tuple(found)


def check_engines(
    block: Item, partitions: tuple[PartitionWish, ...], engines: tuple[EngineCommands, ...], findings: Findings
) -> None:
    """Note the partitions of this mapping whose engine nobody knows."""
    own = [engine.name for engine in engines]
    for wish in partitions:
        if not wish.engine or wish.engine in own or wish.engine in OURS["hosted_engines"]:
            continue
        try:
            find("hosted_engines", wish.engine)
        except CantleError as problem:
            line = block.mapping[wish.name].mapping["engine"].line
            mend = did_you_mean(wish.engine, [*own, *OURS["hosted_engines"]]) or "say its commands under `engines`"
            findings.wrong(line, f"cantle.partitions.{wish.name}.engine", str(problem), mend)


def _engine(name: str, item: Item, path: str, findings: Findings) -> EngineCommands:
    only(item, KEYS, path, findings)
    said: dict[str, Any] = {}
    for key in ("head", "worker", "ready", "worker_ready", "retire"):
        child = item.mapping.get(key)
        if child is None:
            continue
        if not isinstance(child.value, str) or not child.value.strip():
            findings.wrong(child.line, f"{path}.{key}", f"must be text, not {child.kind}")
            continue
        said[key] = child.value
        if key in _COMMANDS:
            _check_text(child, f"{path}.{key}", findings)
    if not said.get("head") and not said.get("worker"):
        findings.wrong(item.line, path, "has no command", "say `head`, `worker` or both")
    if said.get("worker_ready") == PORT:
        what = f"`{PORT}` is the head's; say with which text a line of a worker's stdout begins"
        findings.wrong(item.mapping["worker_ready"].line, f"{path}.worker_ready", what)
    env = item.mapping.get("env")
    if env is not None and is_kind(env, dict, f"{path}.env", findings):
        said["env"] = {}
        for variable, child in env.mapping.items():
            if isinstance(child.value, dict | list) or child.value is None:
                findings.wrong(child.line, f"{path}.env.{variable}", f"must be text or a number, not {child.kind}")
            else:
                said["env"][variable] = child.text
                _check_text(child, f"{path}.env.{variable}", findings)
    within = item.mapping.get("within")
    if within is not None:
        try:
            said["within_s"] = duration_s(within.text)
        except ValueError:
            what = f"must be a time such as '2 min' or '90 s', not {within.text or within.kind}"
            findings.wrong(within.line, f"{path}.within", what)
    return EngineCommands(name, **said)


def _check_text(item: Item, key: str, findings: Findings) -> None:
    try:
        filled(item.text, _ANY, key.rpartition(".")[2])
    except CantleError as problem:
        findings.wrong(item.line, key, str(problem), "known are " + ", ".join(f"{{{name}}}" for name in NAMES))
