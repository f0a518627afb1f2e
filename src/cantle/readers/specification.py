"""What does the file say outside its steps: description, environment, batch, parameters and Cantle's own block?

All problems are noted, none is raised: the shape is checked here, and what is sound is passed on. Names and texts are still
as written; tokens are expanded later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cantle.model.study import EngineCommands, Limits, PartitionWish, Slicing

from .findings import Findings, did_you_mean, meant
from .shape import is_kind, only, required_text
from .tokens import Parameter
from .yaml_nodes import Item

BATCH_TYPES = ("local", "slurm", "lsf", "flux", "local_pool")
_TOP = ("description", "env", "batch", "study", "global.parameters", "cantle")
_ENV = ("variables", "labels", "sources", "dependencies")
_SLICING = ("slices", "streams", "max_active")
_OWN = ("steps", "throttle", "rlimit", "fail_fast", "partitions", "engines", "kinds", "scaling", *_SLICING)
_REFS = ("tag", "hash", "branch")
TAKEN = ("SPECROOT",)


class PathEntry(msgspec.Struct):
    """A directory or file that must be there."""

    name: str
    path: str
    line: int
    key: str


class GitEntry(msgspec.Struct):
    """A repository to be cloned to `<path>/<name>`; `ref` is what to check out, "" for its default branch."""

    name: str
    path: str
    url: str
    line: int
    key: str
    ref: str = ""


class Specification(msgspec.Struct):
    """What stands in the file, still with its tokens."""

    name: str = ""
    description: str = ""
    values: dict[str, str] = {}
    native: dict[str, Any] = {}
    lines: dict[str, int] = {}
    paths: list[PathEntry] = []
    gits: list[GitEntry] = []
    batch: dict[str, Any] = {}
    lines_of_batch: dict[str, int] = {}
    steps: list[Item] = []
    parameters: list[Parameter] = []
    sound_parameters: bool = True
    own_steps: dict[str, Item] = {}
    limits: Limits = Limits()
    slicing: Slicing | None = None
    partitions: tuple[PartitionWish, ...] = ()
    engines: tuple[EngineCommands, ...] = ()


def specification(root: Item, findings: Findings) -> Specification:
    """The specification in this document."""
    spec = Specification()
    if not isinstance(root.value, dict):
        findings.wrong(root.line, "", f"the file is {root.kind}, not a mapping", "is this a study?")
        return spec
    top = root.mapping
    for key, item in top.items():
        if key == "merlin":
            findings.odd(root.lines[key], key, "is a Merlin extension and is ignored")
        elif key not in _TOP:
            hint = did_you_mean(key, _TOP)
            findings.odd(root.lines[key], key, f"is no key of a study and is ignored{'; ' + hint if hint else ''}")
        if item.value is None and key in ("env", "batch", "cantle"):
            item.value = {}
    _description(root, spec, findings)
    if "env" in top and is_kind(top["env"], dict, "env", findings):
        _environment(top["env"], spec, findings)
    if "batch" in top and is_kind(top["batch"], dict, "batch", findings):
        _batch(top["batch"], spec, findings)
    if "global.parameters" in top and top["global.parameters"].value is not None:
        before = len(findings.problems)
        _parameters(top["global.parameters"], spec, findings)
        spec.sound_parameters = len(findings.problems) == before
    if "study" not in top or top["study"].value is None or top["study"].value == []:
        line = top["study"].line if "study" in top else root.line
        mend = _meant("study", root) or "a study lists at least one step under `study`"
        findings.wrong(line, "study", "there are no steps", mend)
    elif is_kind(top["study"], list, "study", findings):
        spec.steps = top["study"].value
    if "cantle" in top and is_kind(top["cantle"], dict, "cantle", findings):
        _own(top["cantle"], spec, findings)
    return spec


def _description(root: Item, spec: Specification, findings: Findings) -> None:
    item = root.mapping.get("description")
    if item is None:
        mend = _meant("description", root) or "a study has `description` with `name` and `description`"
        findings.wrong(root.line, "description", "is missing", mend)
    elif is_kind(item, dict, "description", findings):
        spec.name = required_text(item, "name", "description", findings)
        spec.description = required_text(item, "description", "description", findings)


def _meant(key: str, root: Item) -> str:
    if key in root.mapping:
        return ""
    return meant(key, {other: line for other, line in root.lines.items() if other not in _TOP})


def _environment(item: Item, spec: Specification, findings: Findings) -> None:
    for key, block in item.mapping.items():
        path = f"env.{key}"
        if key not in _ENV:
            mend = did_you_mean(key, _ENV) or f"`env` has {', '.join(_ENV)}"
            findings.wrong(item.lines[key], path, "is not a key of `env`", mend)
        elif block.value is None:
            continue
        elif key == "sources":
            if is_kind(block, list, path, findings) and block.value:
                findings.odd(item.lines[key], path, "has no effect, neither here nor in Maestro")
        elif is_kind(block, dict, path, findings):
            if key == "dependencies":
                _dependencies(block, spec, findings)
            else:
                for name, value in block.mapping.items():
                    _variable(name, value, block.lines[name], f"{path}.{name}", spec, findings)


def _variable(name: str, item: Item, line: int, key: str, spec: Specification, findings: Findings) -> None:
    labels = key.startswith("env.labels")
    value = item.value
    if isinstance(value, bool) and labels:
        value = str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        mend = "put it into quotes" if not isinstance(value, dict | list) and value is not None else "give one text"
        findings.wrong(line, key, f"must be text or a number, not {item.kind}", mend)
        value = ""
    elif value == "":
        findings.wrong(line, key, "is empty", "give it a value or remove it")
    _name(name, line, key, spec, findings)
    spec.native[name] = value
    spec.values[name] = str(value)


def _name(name: str, line: int, key: str, spec: Specification, findings: Findings) -> None:
    if not name:
        findings.wrong(line, key, "a name is empty")
    elif name in spec.lines:
        findings.wrong(line, key, f"the name {name!r} is taken by line {spec.lines[name]}", "names of `env` are unique")
    elif name in TAKEN:
        findings.wrong(line, key, f"the name {name} is set by the system", "choose another")
    spec.lines.setdefault(name, line)


def _dependencies(block: Item, spec: Specification, findings: Findings) -> None:
    for kind, items in block.mapping.items():
        path = f"env.dependencies.{kind}"
        if kind == "spack":
            findings.odd(block.lines[kind], path, "has no effect, neither here nor in Maestro")
        elif kind not in ("paths", "git"):
            mend = did_you_mean(kind, ("paths", "git", "spack"))
            findings.wrong(block.lines[kind], path, "is no kind of dependency", mend or "there are paths and git")
        elif items.value is not None and is_kind(items, list, path, findings):
            for i, entry in enumerate(items.value):
                place = f"{path}[{i}]"
                if is_kind(entry, dict, place, findings):
                    (_path_entry if kind == "paths" else _git_entry)(entry, place, spec, findings)


def _path_entry(entry: Item, place: str, spec: Specification, findings: Findings) -> None:
    only(entry, ("name", "path"), place, findings)
    name = required_text(entry, "name", place, findings)
    path = required_text(entry, "path", place, findings)
    if name and path:
        _name(name, entry.line, f"{place}.name", spec, findings)
        spec.paths.append(PathEntry(name, path, entry.lines["path"], f"{place}.path"))


def _git_entry(entry: Item, place: str, spec: Specification, findings: Findings) -> None:
    only(entry, ("name", "path", "url", *_REFS), place, findings)
    name, path, url = (required_text(entry, key, place, findings) for key in ("name", "path", "url"))
    refs = {key: entry.mapping[key] for key in _REFS if key in entry.mapping}
    if len(refs) > 1:
        findings.wrong(entry.line, place, f"has {' and '.join(refs)}", "say one of them, or none")
    ref = ""
    for key, item in refs.items():
        if item.text == "":
            findings.wrong(item.line, f"{place}.{key}", "is empty")
        ref = f"tags/{item.text}" if key == "tag" else item.text
    if name and path and url:
        _name(name, entry.line, f"{place}.name", spec, findings)
        spec.gits.append(GitEntry(name, path, url, entry.line, place, ref))


def _batch(item: Item, spec: Specification, findings: Findings) -> None:
    spec.batch = item.plain()
    kind = spec.batch.setdefault("type", "local")
    if kind not in BATCH_TYPES:
        mend = did_you_mean(str(kind), BATCH_TYPES) or f"known are {', '.join(BATCH_TYPES)}"
        findings.wrong(item.lines["type"], "batch.type", f"{kind!r} is no kind of batch system here", mend)
    shell = spec.batch.get("shell", "/bin/bash")
    if not isinstance(shell, str) or not shell.strip():
        findings.wrong(item.lines["shell"], "batch.shell", "must be the path of a shell", "/bin/bash, say")
        del spec.batch["shell"]
    for key in ("launcher", "mpi"):
        if not isinstance(spec.batch.get(key, ""), str):
            findings.wrong(item.lines[key], f"batch.{key}", "must be a name", "openmpi, mpich or srun, say")
            del spec.batch[key]
    spec.lines_of_batch = item.lines


def _parameters(block: Item, spec: Specification, findings: Findings) -> None:
    if not is_kind(block, dict, "global.parameters", findings):
        return
    lengths: dict[str, int] = {}
    for key, item in block.mapping.items():
        place = f"global.parameters.{key}"
        if not is_kind(item, dict, place, findings):
            continue
        only(item, ("values", "label"), place, findings)
        values = item.mapping.get("values")
        if values is None:
            findings.wrong(block.lines[key], f"{place}.values", "is missing", "list the values")
            continue
        if not is_kind(values, list, f"{place}.values", findings):
            continue
        if not values.value:
            findings.wrong(values.line, f"{place}.values", "is empty, so steps that use it would have no instance")
            continue
        lengths[key] = len(values.value)
        texts = [str(value.plain()) for value in values.value]
        label = item.mapping.get("label")
        labels = _labels(key, label, texts, place, findings)
        spec.parameters.append(Parameter(key, key, texts, labels, block.lines[key]))
        if key in spec.lines:
            findings.odd(
                block.lines[key], place, f"is hidden by the name of the same spelling in line {spec.lines[key]}"
            )
        if any("$(" in text for text in texts):
            findings.odd(values.line, f"{place}.values", "tokens in values are not expanded (nor are they by Maestro)")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        findings.wrong(
            block.line,
            "global.parameters",
            f"lists differ in length: {listed}",
            "combination i takes element i of each",
        )


def _labels(key: str, label: Item | None, texts: list[str], place: str, findings: Findings) -> list[str]:
    if label is None:
        return [f"{key}.{text}" for text in texts]
    if isinstance(label.value, list):
        if len(label.value) != len(texts):
            what = f"there are {len(label.value)} labels for {len(texts)} values"
            findings.wrong(label.line, f"{place}.label", what, "give one label for each value")
            return texts
        return [str(each.plain()).replace("%%", text) for each, text in zip(label.value, texts, strict=True)]
    if not isinstance(label.value, str) or not label.value:
        findings.wrong(label.line, f"{place}.label", f"must be text, not {label.kind}", f"{key}.%%, say")
        return texts
    return [label.value.replace("%%", text) for text in texts]


def _own(block: Item, spec: Specification, findings: Findings) -> None:
    only(block, _OWN, "cantle", findings)
    counts = {"throttle": 0, "rlimit": 1}
    for key in counts:
        item = block.mapping.get(key)
        if item is not None:
            if isinstance(item.value, int) and not isinstance(item.value, bool) and item.value >= 0:
                counts[key] = item.value
            else:
                findings.wrong(item.line, f"cantle.{key}", "must be a whole number, 0 or more", "0 means no bound")
    fail_fast = block.mapping.get("fail_fast", Item(False, 0))
    if not isinstance(fail_fast.value, bool):
        findings.wrong(fail_fast.line, "cantle.fail_fast", "must be true or false")
    spec.limits = Limits(counts["throttle"], counts["rlimit"], fail_fast.value is True)
    if any(key in block.mapping for key in _SLICING):
        from .slicing import slicing_of

        spec.slicing = slicing_of(block, "cantle", findings)
    if "partitions" in block.mapping:
        from .partitions import partitions_of

        spec.partitions = partitions_of(block.mapping["partitions"], "cantle.partitions", findings)
    if "engines" in block.mapping:
        from .engines import engines_of

        spec.engines = engines_of(block.mapping["engines"], "cantle.engines", findings)
    if any(wish.engine for wish in spec.partitions):
        from .engines import check_engines

        check_engines(block.mapping["partitions"], spec.partitions, spec.engines, findings)
    if "kinds" in block.mapping or "scaling" in block.mapping:
        from .kinds import kinds_of, scaling_of

        if "kinds" in block.mapping:
            kinds_of(block.mapping["kinds"], "cantle.kinds", findings)
        scaling_of(block, findings)
    steps = block.mapping.get("steps")
    if steps is not None and steps.value is not None and is_kind(steps, dict, "cantle.steps", findings):
        spec.own_steps = steps.mapping
