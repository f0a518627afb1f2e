"""How does a study, a file or an option say how the nodes are sliced?

    cantle:
        streams: 400
        slices: [3 x 400, 2 x 100 / 2, {width: 50, copies: 2, share: 1}]
        max_active: 6

The same three keys stand at the top of a file of its own, or the list of slices alone. `slicing_of` reads them,
`asked_for` what options say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cantle.errors import RequestError
from cantle.model.slicing import faults_of, slice_of, slices_of
from cantle.model.study import MOST_STREAMS, Slice, Slicing, Step

from .expansion import Expansion
from .findings import Findings
from .settings import too_many
from .shape import only
from .yaml_nodes import Item, parse

KEYS = ("slices", "streams", "max_active")
_FOR_INSTANCE = "`slices: [3 x 400, 2 x 100]`"


def slicing_of(block: Item, place: str, findings: Findings) -> Slicing:
    """The slicing that these keys of a mapping say. What is wrong is noted, each with the arithmetic that shows it."""
    before = len(findings.problems)
    counts = {"streams": 0, "max_active": 0}
    for key in counts:
        item = block.mapping.get(key)
        if item is not None:
            counts[key] = _count(item, f"{place}.{key}".lstrip("."), 1, findings)
    if counts["streams"] > MOST_STREAMS:
        item = block.mapping["streams"]
        findings.wrong(item.line, f"{place}.streams".lstrip("."), *too_many(counts["streams"], MOST_STREAMS))
    slices: list[Slice] = []
    item = block.mapping.get("slices")
    if item is not None:
        entries = item.value if isinstance(item.value, list) else [item]
        for number, entry in enumerate(entries):
            key = f"{place}.slices[{number}]" if entry is not item else f"{place}.slices"
            slices += _slices(entry, key.lstrip("."), findings)
    slicing = Slicing(tuple(slices), counts["streams"], counts["max_active"])
    line = item.line if item is not None else block.line
    if "max_active" in block.mapping and not slices:
        findings.wrong(line, f"{place}.max_active".lstrip("."), "there are no slices to bound", "list `slices`")
    if len(findings.problems) > before:
        return slicing
    for what, mend in faults_of(slicing):
        findings.wrong(line, f"{place}.slices".lstrip("."), what, mend)
    return slicing


def from_file(path: Path) -> Slicing:
    """The slicing in this YAML file. Raises StudyError with all problems, RequestError when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"--slices {path}: cannot be read: {reason}") from None
    findings = Findings(str(path))
    root = parse(text, findings, f"a file of slices says {_FOR_INSTANCE}")
    if root is not None and isinstance(root.value, list | str):
        root = Item({"slices": root}, root.line, lines={"slices": root.line})
    slicing = Slicing()
    if root is not None and isinstance(root.value, dict):
        only(root, KEYS, "", findings)
        slicing = slicing_of(root, "", findings)
        if not slicing.slices and not findings.problems:
            findings.wrong(root.line, "slices", "is missing", f"{_FOR_INSTANCE}, say")
    elif root is not None:
        findings.wrong(root.line, "", f"the file is {root.kind}, not a mapping or a list", f"{_FOR_INSTANCE}, say")
    findings.raise_if_wrong()
    return slicing


def asked_for(slices: str, streams: int, max_active: int) -> Slicing:
    """What the options say: slices as text or the name of a file, and counts, each "" or 0 when not given.

    Raises RequestError or StudyError with what is wrong.
    """
    found = Slicing()
    path = Path(slices)
    if slices and (path.suffix in (".yaml", ".yml") or path.is_file()):
        found = from_file(path)
    elif slices:
        try:
            found = Slicing(slices_of(slices))
        except ValueError as error:
            raise RequestError(f"--slices: {error}; or name a YAML file") from None
        if not found.slices:
            raise RequestError(f"--slices: {slices!r} lists no slice; write 3 x 400, 2 x 100, say")
    if streams > MOST_STREAMS:
        what, mend = too_many(streams, MOST_STREAMS)
        raise RequestError(f"--streams {what}; {mend}")
    return Slicing(found.slices, streams or found.streams, max_active or found.max_active)


def overruled(study: Slicing | None, asked: Slicing | None, findings: Findings) -> Slicing | None:
    """The study's slicing, where the options say nothing else. What does not go together is noted."""
    if asked is None:
        return study
    said = study or Slicing()
    slices = asked.slices or said.slices
    max_active = asked.max_active or (0 if asked.slices else said.max_active)
    if max_active and not slices:
        findings.wrong(
            0, "", "--max-active: there are no slices to bound", "say which, as in --slices '3 x 400, 2 x 100'"
        )
    slicing = Slicing(slices, asked.streams or said.streams, max_active)
    for what, mend in faults_of(slicing):
        findings.wrong(0, "", f"--slices, --streams: {what}", mend)
    return slicing


def check_steps(slicing: Slicing, expansion: Expansion, findings: Findings) -> None:
    """Note steps on several nodes for which there is no slice of their width."""
    for step, plan in zip(expansion.steps, expansion.plan_of, strict=True):
        fault, note = _mismatch(slicing, step)
        said = plan.settings.get("widths") or plan.settings.get("nodes")
        if said is not None and fault:
            findings.wrong(said.line, said.key, fault, "add such a slice under `cantle.slices`, or another width here")
        elif said is not None and note:
            findings.odd(said.line, said.key, note)


def _mismatch(slicing: Slicing, step: Step) -> tuple[str, str]:
    """What is wrong, and what merely odd, with the step's widths in these slices; "" for nothing."""
    if not slicing.slices or step.partition or not (step.widths or step.needs.nodes > 1):
        return "", ""
    there = {each.width for each in slicing.slices}
    wanted = step.widths or (step.needs.nodes,)
    missing = [width for width in wanted if width not in there]
    if not missing:
        return "", ""
    noun = "node" if missing == [1] else "nodes"
    what = f"no slice has elements of {_listed(missing, 'or')} {noun}: there are {_listed(sorted(there), 'and')}"
    return (what, "") if len(missing) == len(wanted) else ("", what)


def _listed(numbers: Sequence[int], word: str) -> str:
    *most, last = (f"{number:,}" for number in numbers)
    return f"{', '.join(most)} {word} {last}" if most else last


def _slices(entry: Item, key: str, findings: Findings) -> list[Slice]:
    if isinstance(entry.value, str):
        try:
            return list(slices_of(entry.value)) or [slice_of(entry.value)]
        except ValueError as error:
            findings.wrong(entry.line, key, *_cut(str(error)))
    elif isinstance(entry.value, dict):
        only(entry, ("width", "copies", "share"), key, findings)
        said = {}
        for name, child in entry.mapping.items():
            if name in ("width", "copies", "share"):
                said[name] = _count(child, f"{key}.{name}", 1, findings)
        if "width" in said:
            return [Slice(**said)]
        findings.wrong(entry.line, f"{key}.width", "is missing", "on how many nodes does an element stand?")
    else:
        mend = "write 3 x 400, or {width: 400, copies: 3}"
        findings.wrong(entry.line, key, f"must be a slice, not {entry.kind}", mend)
    return []


def _cut(text: str) -> tuple[str, str]:
    what, _, mend = text.partition("; ")
    return what, mend


def _count(item: Item, key: str, least: int, findings: Findings) -> int:
    if isinstance(item.value, int) and not isinstance(item.value, bool) and item.value >= least:
        return item.value
    findings.wrong(item.line, key, f"must be a whole number, {least} or more, not {item.text or item.kind}")
    return least
