"""What stands in a YAML file, and on which line?

YAML 1.1 as PyYAML reads it, with three differences: every value remembers its line and its source text; a key that stands
twice in one mapping is a problem instead of a silent loss; and clock-like scalars (`10:00:00`) stay text, where YAML 1.1
makes numbers to the base 60 of them (36000), which batch systems then misread.
"""

from __future__ import annotations

import re
from typing import Any

from .findings import Findings

_MOST_BY_ALIASES = 1_000_000
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")


class Item:
    """A value of the file.

    `value` is a dict of Items, a list of Items or a scalar; `line` counts from 1; `text` is a scalar's source text; `lines`
    tells the line of each key of a mapping.
    """

    __slots__ = ("line", "lines", "text", "value")

    def __init__(self, value: Any, line: int, text: str = "", lines: dict[str, int] | None = None) -> None:
        self.value = value
        self.line = line
        self.text = text
        self.lines = lines or {}

    @property
    def mapping(self) -> dict[str, Item]:
        """The entries of a mapping; nothing for other values."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def kind(self) -> str:
        """What people call this kind of value."""
        if self.value is None:
            return "nothing"
        names = {dict: "a mapping", list: "a list", str: "text", bool: "yes/no", int: "a number", float: "a number"}
        return names.get(type(self.value), "a date")

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


def parse(
    text: str, findings: Findings, least: str = "a study needs at least `description` and `study`"
) -> Item | None:
    """The document of this text; None, with the problems noted, when there is none to be read.

    `least` tells what should stand in an empty file.
    """
    import yaml

    loader_class: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
        node = loader.get_single_node()
        if node is None:
            findings.wrong(1, "", "the file is empty", least)
            return None
        builder = _Builder(loader, findings)
        item = builder.item(node, "")
        if builder.sizes.get(id(node), 0) > _MOST_BY_ALIASES + len(text):
            findings.wrong(1, "", "a few lines stand for millions of values, by aliases of aliases", "write them out")
            return None
        return item
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line, text.count("\n", 0, len(text.rstrip()))) + 1 if mark else 0  # it may stand behind the end
        what = " ".join(part for part in (error.context, error.problem) if part)
        mend = "a tab cannot indent YAML" if mark and "\t" in text.splitlines()[mark.line : mark.line + 1] else ""
        if "found character" in what and "token" in what:
            mend = "values that begin with %, @, ` or a tab need quotes"
        findings.wrong(line, "", f"not YAML: {what}", mend)
    except yaml.reader.ReaderError as error:
        character = error.character if isinstance(error.character, int) else 0
        line = text.count("\n", 0, max(0, text.find(chr(character)))) + 1
        what = f"not YAML: the character {chr(character)!r}, which cannot be printed, stands here"
        findings.wrong(line, "", what, "remove it, or write it as an escape in double quotes")
    except yaml.YAMLError as error:
        findings.wrong(0, "", f"not YAML: {error}")
    except RecursionError:
        findings.wrong(0, "", "nested too deeply", "an alias that contains itself?")
    return None


class _Builder:
    """Turns PyYAML's nodes into Items."""

    def __init__(self, loader: Any, findings: Findings) -> None:
        self.loader = loader
        self.findings = findings
        self.done: dict[int, Item] = {}
        self.open: set[int] = set()
        self.sizes: dict[int, int] = {}

    def item(self, node: Any, key: str) -> Item:
        line = node.start_mark.line + 1
        if node.id == "scalar":
            return self.scalar(node, key, line)
        if id(node) in self.open:
            self.findings.wrong(line, key, "contains itself, by an alias", "write it out")
            return Item(None, line)
        if id(node) in self.done:
            return self.done[id(node)]
        item = self.done[id(node)] = Item(None, line)
        self.open.add(id(node))
        if node.id == "sequence":
            item.value = [self.item(child, f"{key}[{i}]") for i, child in enumerate(node.value)]
        else:
            self.mapping(node, key, item)
        self.open.remove(id(node))
        children = node.value if node.id == "sequence" else [child for _, child in node.value]
        inner = sum(self.sizes[id(child)] for child in children if id(child) in self.sizes)
        self.sizes[id(node)] = len(children) + inner
        return item

    def scalar(self, node: Any, key: str, line: int) -> Item:
        import yaml

        text = node.value
        if node.tag.endswith((":int", ":float")) and ":" in text and _SEXAGESIMAL.fullmatch(text):
            return Item(text, line, text)
        if node.tag.endswith(":str"):
            return Item(text, line, text)
        if node.tag.endswith(":int") and text.isdecimal() and (text[0] != "0" or text == "0") and len(text) < 1000:
            return Item(int(text), line, text)
        try:
            return Item(self.loader.construct_object(node), line, text)
        except (yaml.YAMLError, ValueError) as error:
            detail = getattr(error, "problem", None) or str(error)
            shown = text if len(text) < 80 else f"{text[:40]}..."
            self.findings.wrong(line, key, f"cannot read {shown!r}: {detail}", "put it into quotes")
            return Item(text, line, text)

    def mapping(self, node: Any, key: str, item: Item) -> None:
        own: set[str] = set()
        for key_node, _ in node.value:
            if key_node.id == "scalar" and not key_node.tag.endswith(":merge"):
                if key_node.value in own:
                    place = f"{key}.{key_node.value}" if key else key_node.value
                    self.findings.wrong(
                        key_node.start_mark.line + 1, place, "this key stands twice", "keep one; YAML drops the first"
                    )
                own.add(key_node.value)
        self.loader.flatten_mapping(node)
        entries: dict[str, Item] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.id != "scalar":
                self.findings.wrong(line, key, "a key must be a word", "is there a ':' or a '{' too many?")
                continue
            name = key_node.value
            item.lines[name] = line
            entries[name] = self.item(value_node, f"{key}.{name}" if key else name)
        item.value = entries
