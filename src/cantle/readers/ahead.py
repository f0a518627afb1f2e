"""Can a study's file be parsed while the rest of the program is still being loaded? By a child, on another core.

Loading PyYAML takes a sixth of a one-task run, and so does loading what will need its result. `errand` gives the work for a
child that is forked anyway (the runner, before it serves), `parsed` fetches what came of it. Whatever goes wrong in between,
the caller parses the file itself: nothing depends on this but time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cantle.readers.findings import Findings
    from cantle.readers.yaml_nodes import Item

_WHOLE = b"whole"
"""The last bytes of an answer that is complete."""

_asked: tuple[bytes, int, int] | None = None
"""The text, and the two ends of the pipe for the answer."""


def errand(path: str | os.PathLike[str]) -> Callable[[], None] | None:
    """What a child shall do: parse this file and answer. None when the file cannot be read."""
    global _asked
    try:
        with open(path, "rb") as file:
            text = file.read()
        read_fd, write_fd = os.pipe()
    except OSError:
        return None
    _asked = (text, read_fd, write_fd)
    file_name = os.fspath(path)

    def parse_and_answer() -> None:
        _answer(text, file_name, write_fd)

    return parse_and_answer


def parsed(text: bytes, findings: Findings) -> Item | None:
    """What the child made of this very text; None when there is nothing, or it has to be done again to tell what is wrong."""
    global _asked
    if _asked is None:
        return None
    asked, read_fd, write_fd = _asked
    _asked = None
    os.close(write_fd)  # the child's copy is the only one now: if it dies, the answer ends
    pieces = []
    try:
        while piece := os.read(read_fd, 1 << 20):
            pieces.append(piece)
    finally:
        os.close(read_fd)
    answer = b"".join(pieces)
    if asked != text or not answer.endswith(_WHOLE):
        return None
    import marshal

    from cantle.readers.yaml_nodes import Item

    def item(plain: tuple[Any, int, str, dict[str, int]]) -> Item:
        value, line, source, lines = plain
        if type(value) is dict:
            value = {key: item(entry) for key, entry in value.items()}
        elif type(value) is list:
            value = [item(entry) for entry in value]
        return Item(value, line, source, lines)

    root, warnings = marshal.loads(answer[: -len(_WHOLE)])
    findings.warnings += warnings
    return item(root)


def _answer(text: bytes, file: str, fd: int) -> None:
    """In the child: parse, and write what came of it. Nothing is written when it is not to be used."""
    import marshal

    from cantle.readers.findings import Findings
    from cantle.readers.yaml_nodes import parse

    def plain(item: Item) -> tuple[Any, int, str, dict[str, int]]:
        value = item.value
        if type(value) is dict:
            value = {key: plain(entry) for key, entry in value.items()}
        elif type(value) is list:
            value = [plain(entry) for entry in value]
        return value, item.line, item.text, item.lines

    try:
        findings = Findings(file)
        root = parse(text.decode("utf-8-sig"), findings)
        if root is not None and not findings.problems:
            data = marshal.dumps((plain(root), findings.warnings)) + _WHOLE
            while data:
                data = data[os.write(fd, data) :]
    except Exception:  # noqa: BLE001, S110 - the parent parses it again, and tells
        pass
    finally:
        os.close(fd)
