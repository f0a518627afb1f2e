"""Where do results wait that no conductor has written down? In the spool: one JSON array a line, an `Ended` each."""

from __future__ import annotations

import os

import msgspec

from .messages import Ended


def write_spool(path: str, results: list[Ended]) -> None:
    """Append results and see to it that they are on disk. Raises OSError when that cannot be done."""
    encode = msgspec.json.encode
    data = b"".join(encode(result) + b"\n" for result in results)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def read_spool(path: str) -> list[Ended]:
    """All whole lines of a spool, none when there is no file. A torn last line is passed over."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    found = []
    decode = msgspec.json.Decoder(Ended).decode
    for line in data.split(b"\n"):
        try:
            found.append(decode(line))
        except msgspec.MsgspecError:
            continue
    return found
