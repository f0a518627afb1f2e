"""What does one line of the journal look like?

A record as a JSON object whose last key is the checksum (CRC-32) of all that stands before it on the line:
`{"is":"TimePassed","time":1.5,"crc":"0f9a3c21"}`. The first line is sealed alike and says which format follows; it keeps its
shape in every format, so that each version can tell what it cannot read.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from cantle.errors import JournalError
from cantle.model.records import AnyRecord

FORMAT = 1
SEAL = len(b',"crc":"01234567"}')

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyRecord] | None = None
"""Made when first needed: that takes longer than many a run."""
# Patterns as they are, not compiled: only what is damaged needs them.
_START = rb'\{"is":"'
_END = rb',"crc":"[0-9a-f]{8}"\}'
_SURROGATE = "[\ud800-\udfff]"


class Damage(NamedTuple):
    """A stretch of the journal that cannot be read. `line` counts from 1, `offset` is its first byte, `length` in bytes."""

    line: int
    offset: int
    length: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line} (byte {self.offset:,}, {self.length:,} bytes): {self.reason}"


def line_of(record: AnyRecord) -> bytes:
    """The record as a line, with its newline. Text that is not Unicode (odd file names) gets replacement characters."""
    try:
        body = _encode(record)[:-1]
    except UnicodeEncodeError:
        body = _encode(_printable(msgspec.to_builtins(record)))[:-1]
    return body + b',"crc":"%08x"}\n' % crc32(body)


def record_in(line: bytes) -> AnyRecord:
    """The record of a line without its newline. Raises ValueError with the reason when the line is damaged."""
    if line[-SEAL:] != b',"crc":"%08x"}' % crc32(line[:-SEAL]):
        raise ValueError(_what_is_wrong(line))
    global _decoder
    if _decoder is None:
        _decoder = msgspec.json.Decoder(AnyRecord)
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a record that this version of Cantle does not know: {error}") from error


def whole_records_in(damaged: bytes) -> list[AnyRecord]:
    """Records that stand unharmed inside a damaged stretch, where only the newline beside them was lost."""
    found = []
    position = 0
    while start := re.compile(_START).search(damaged, position):
        position = start.end()
        if end := re.compile(_END).search(damaged, position):
            try:
                found.append(record_in(damaged[start.start() : end.end()]))
            except ValueError:
                continue
            position = end.end()
    return found


def _header(number: int) -> bytes:
    body = b'{"cantle":"journal","format":%d' % number
    return body + b',"crc":"%08x"}\n' % crc32(body)


HEADER = _header(FORMAT)


def check_header(line: bytes, path: object) -> str:
    """What is wrong with the first line (without newline), "" if nothing. Raises JournalError if it is of a newer format."""
    if line == HEADER[:-1]:
        return ""
    if line[-SEAL:] == b',"crc":"%08x"}' % crc32(line[:-SEAL]):
        try:
            said = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            said = None
        if isinstance(said, dict) and said.get("cantle") == "journal":
            raise JournalError(
                f"{path} has format {said.get('format')}, and this version of Cantle reads format {FORMAT}: "
                "it was written by a newer version. Use that version, or a newer one."
            )
    return f"the first line is not that of a journal; taken for format {FORMAT}"


def could_become_header(tail: bytes) -> bool:
    """Whether a file that holds just this is a journal whose first line was never finished."""
    return HEADER.startswith(tail.rstrip(b"\0"))


def _what_is_wrong(line: bytes) -> str:
    if not line.strip(b"\0"):
        return "nothing but zeros"
    if zeros := line.count(b"\0"):
        return f"{zeros:,} bytes of it are zeros"
    if not re.fullmatch(_END, line[-SEAL:]):
        return "no checksum at its end"
    return "its checksum does not fit its content"


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(_SURROGATE, "\ufffd", value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
