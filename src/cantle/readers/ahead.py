"""Can a study's file be parsed while the rest of the program is still being loaded? In a forked child, on another core.

Loading PyYAML takes a sixth of a one-task run, and so does loading what will need its result. `begin` starts the parsing,
`parsed` fetches what came of it. Whatever goes wrong in between, the caller parses the file itself: nothing depends on this
but time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cantle.readers.findings import Findings
    from cantle.readers.yaml_nodes import Item

_begun: tuple[bytes, int, int] | None = None
"""The text, the child's pid, and the descriptor on which its answer comes."""


def begin(path: str | os.PathLike[str]) -> None:
    """Begin to parse this file if it can be read. Call it early, while the process is small and has no threads."""
    global _begun
    try:
        with open(path, "rb") as file:
            text = file.read()
        read_fd, write_fd = os.pipe()
    except OSError:
        return
    try:
        pid = os.fork()
    except OSError:
        os.close(read_fd)
        os.close(write_fd)
        return
    if pid == 0:
        _be_the_parser(text, os.fspath(path), write_fd)
    os.close(write_fd)
    _begun = (text, pid, read_fd)


def parsed(text: bytes, findings: Findings) -> Item | None:
    """What `begin` made of this very text; None when there is nothing, or it has to be done again to tell what is wrong."""
    global _begun
    if _begun is None:
        return None
    begun_with, pid, fd = _begun
    _begun = None
    pieces = []
    try:
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(fd)
    if status != 0 or begun_with != text:
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

    root, warnings = marshal.loads(b"".join(pieces))
    findings.warnings += warnings
    return item(root)


def _be_the_parser(text: bytes, file: str, fd: int) -> None:
    """The child's whole life: parse, answer, leave. A status other than 0 says that the answer does not count."""
    status = 1
    try:
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

        findings = Findings(file)
        root = parse(text.decode("utf-8-sig"), findings)
        if root is not None and not findings.problems:
            data = marshal.dumps((plain(root), findings.warnings))
            while data:
                data = data[os.write(fd, data) :]
            status = 0
    finally:
        # Neither the parent's clean-up nor its buffers are ours, and a traceback would be of no use to anybody.
        os._exit(status)
