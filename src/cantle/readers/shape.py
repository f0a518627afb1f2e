"""Is a mapping, a list or a text where one should be? What is not is noted, with its place."""

from __future__ import annotations

from .findings import Findings, did_you_mean
from .yaml_nodes import Item

_KINDS: dict[type, str] = {dict: "a mapping", list: "a list"}


def is_kind(item: Item, kind: type, key: str, findings: Findings) -> bool:
    """Whether the item is a mapping (dict) or a list, as it should be; noted when it is not."""
    if isinstance(item.value, kind):
        return True
    findings.wrong(item.line, key, f"must be {_KINDS[kind]}, not {item.kind}")
    return False


def only(item: Item, known: tuple[str, ...], place: str, findings: Findings) -> None:
    """Note each key of this mapping that is not among the known ones."""
    for key in item.mapping:
        if key not in known:
            mend = did_you_mean(key, known) or f"known are {', '.join(known)}"
            findings.wrong(item.lines[key], f"{place}.{key}" if place else key, "is not known here", mend)


def required_text(item: Item, key: str, place: str, findings: Findings) -> str:
    """The non-empty text under this key; "" with the problem noted when it is missing or something else."""
    child = item.mapping.get(key)
    if child is None:
        findings.wrong(item.line, f"{place}.{key}", "is missing")
    elif not isinstance(child.value, str):
        mend = "put it into quotes" if child.text else ""
        findings.wrong(item.lines[key], f"{place}.{key}", f"must be text, not {child.kind}", mend)
    elif not child.value:
        findings.wrong(item.lines[key], f"{place}.{key}", "is empty")
    else:
        return child.value
    return ""
