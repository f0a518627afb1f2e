"""How do Python values become bytes and values again: arguments, results, exceptions?

Small values are pickles. A result that is kept is a file that holds a pickle and, beside it, the buffers of its arrays, each
at a multiple of 64 bytes: whoever reads it maps the file, and no array is copied before somebody writes to it. A file is
never written to again, and what a reader changes is the reader's own.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cantle.errors import RemoteError, printable, said_by

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Packed: TypeAlias = "list[Buffer]"
"""What lies one after the other in a file, or inline."""

INLINE_BYTES = 32 << 10
"""Results up to this size travel with the news that their call is over; larger ones stay where they were made."""
PLAIN = frozenset({int, float, str, bytes, bool, type(None), complex})
"""Values of these types are the same wherever they are read."""

_MAGIC = b"cantle-kept-1\n\0\0"
_ALIGN = 64
_MOST_TRACEBACK = 12 << 10
_MOST_TEXT = 4 << 10
"""So many bytes of a failed call's traceback, and of one text in its exception, are told."""


# Results


def pack(value: object) -> Packed:
    """The value as what lies in its file, or in one piece if it is small. Raises what pickling it raises."""
    buffers: list[pickle.PickleBuffer] = []
    dump: Callable[..., bytes] = pickle.dumps
    try:
        data = dump(value, 5, buffer_callback=buffers.append)
    except Exception:  # noqa: BLE001 (a function or class of the user's script: the other one knows how)
        from .code import dumps

        dump = dumps
        buffers.clear()
        data = dump(value, 5, buffer_callback=buffers.append)
    if not buffers:
        return [data] if len(data) <= INLINE_BYTES else _as_file(data, [])
    raw = [buffer.raw() for buffer in buffers]
    if len(data) + sum(part.nbytes for part in raw) <= INLINE_BYTES:
        return [dump(value, 5)]
    return _as_file(data, raw)


def _as_file(data: bytes, raw: list[memoryview]) -> Packed:
    sizes = [len(data), *(part.nbytes for part in raw)]
    head = _MAGIC + len(sizes).to_bytes(8, "little") + b"".join(size.to_bytes(8, "little") for size in sizes)
    parts: list[Buffer] = [head]
    at = len(head)
    together: list[Buffer] = [data, *raw]
    for part in together:
        gap = -at % _ALIGN
        if gap:
            parts.append(bytes(gap))
        parts.append(part)
        at += gap + len(part)
    return parts


def unpack(data: Buffer) -> Any:
    """The value again. Arrays lie in `data`, so that they can be written to only if it can. Raises what unpickling raises."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        return pickle.loads(data)
    view = memoryview(data)
    at = len(_MAGIC)
    number = int.from_bytes(view[at : at + 8], "little")
    sizes = [int.from_bytes(view[at + 8 * n : at + 8 * n + 8], "little") for n in range(1, number + 1)]
    at += 8 * (number + 1)
    parts = []
    for size in sizes:
        at += -at % _ALIGN
        parts.append(view[at : at + size])
        at += size
    return pickle.loads(parts[0], buffers=parts[1:])


def read_kept(path: str) -> memoryview:
    """The content of a kept result, mapped: what is changed there is seen by nobody else. Raises OSError."""
    import mmap

    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


# Calls


def pack_function(function: Callable[..., Any], reloads: dict[str, int] | None = None) -> tuple[str, bytes]:
    """A digest, by which workers ask for it once, and the pickled function. Raises what pickling raises.

    `reloads`: modules that are to be loaded anew before it is made, as `reloading` has them.
    """
    from hashlib import blake2b

    from .code import dumps

    body = dumps(function)
    if reloads:
        from .reloading import Fresh

        body = pickle.dumps(Fresh(dict(reloads), body), 5)
    return blake2b(body, digest_size=12).hexdigest(), body


def pack_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], number_of: Callable[[Any], int | None]
) -> tuple[bytes, tuple[int, ...]]:
    """The arguments as `Call.arguments` and `Call.takes`.

    `number_of` tells of any object in them, however deep, whether it stands for the result of a task: its number, or None.
    Raises what pickling raises.
    """
    if not kwargs:
        for value in args:
            if type(value) not in PLAIN:
                break
        else:
            return pickle.dumps((args, kwargs), 5), ()
    takes: dict[int, int] = {}

    def place_of(value: Any) -> int | None:
        number = number_of(value)
        return None if number is None else takes.setdefault(number, len(takes))

    file = io.BytesIO()
    shallow = all(type(value) in PLAIN or number_of(value) is not None for value in (*args, *kwargs.values()))
    if shallow:
        pickler = _Placing(file, 5)
        pickler.place_of = place_of
        pickler.dump((args, kwargs))
    else:
        from .code import dump_placing

        dump_placing(file, (args, kwargs), lambda value: None if type(value) in _NEVER else place_of(value))
    return file.getvalue(), tuple(takes)


class _Placing(pickle.Pickler):
    place_of: Callable[[Any], int | None]

    def persistent_id(self, obj: Any) -> int | None:
        return None if type(obj) in _NEVER else self.place_of(obj)


_NEVER = PLAIN | {tuple, list, dict}


class _Placed(pickle.Unpickler):
    given: Sequence[Any]

    def persistent_load(self, pid: Any) -> Any:
        return self.given[pid]


def unpack_call(data: Buffer, given: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keyword arguments, with what is given in the places of what the call takes."""
    if not given:
        found: tuple[tuple[Any, ...], dict[str, Any]] = pickle.loads(data)
        return found
    unpickler = _Placed(io.BytesIO(data))
    unpickler.given = given
    placed: tuple[tuple[Any, ...], dict[str, Any]] = unpickler.load()
    return placed


# Exceptions


def pack_error(error: BaseException, traceback: str) -> bytes:
    """An exception with its traceback as text, in at most `INLINE_BYTES`.

    Of a long traceback the middle is left out, and so it is of the texts in a long exception. What cannot be pickled, or not be
    made again, is told by a `RemoteError`.
    """
    traceback = shortened(traceback, _MOST_TRACEBACK)
    try:
        return _as_bytes(error, traceback)
    except Exception as problem:  # noqa: BLE001 (user's classes do what they like)
        for parts in (_Parts(error), _Parts(error, _MOST_TEXT)):
            try:
                return _as_bytes(parts, traceback)
            except Exception:  # noqa: BLE001
                continue
        name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        text = shortened(f"{name}: {_said(error)}", _MOST_TEXT)
        why = shortened(said_by(problem), _MOST_TEXT)
        return pickle.dumps((RemoteError(f"{text} (told in words, as it cannot be pickled: {why})"), traceback), 5)


def shortened(text: str, most: int) -> str:
    """The text, with its middle left out if it is longer than so many bytes as UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    head, tail = (part.decode("utf-8", "ignore") for part in (data[: most // 2], data[-(most // 2) :]))
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters are left out here ...]\n{tail}"


def _as_bytes(error: object, traceback: str) -> bytes:
    data = b"".join(pack((error, traceback)))
    if len(data) > INLINE_BYTES:
        raise ValueError(f"pickled it is {len(data):,} bytes long")
    unpack(data)
    return data


class _Parts:
    """An exception whose class takes other arguments than those that it hands on: it is made again without being asked.

    Of each text in it no more than `most` bytes are taken along.
    """

    def __init__(self, error: BaseException, most: int = sys.maxsize) -> None:
        self._error = error
        self._most = most

    def __reduce__(self) -> Any:
        error = self._error
        rest = {name: self._cut(value) for name, value in error.__dict__.items()}
        return _from_parts, (type(error), tuple(map(self._cut, error.args)), rest)

    def _cut(self, value: Any) -> Any:
        return shortened(value, self._most) if type(value) is str else value


def _from_parts(kind: type[BaseException], args: tuple[Any, ...], rest: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(rest)
    return error


def unpack_error(data: Buffer) -> BaseException:
    """The exception again, with the remote traceback as a note. Of what cannot be made here, a `RemoteError`."""
    try:
        error, traceback = unpack(data)
    except Exception as problem:  # noqa: BLE001
        return RemoteError(f"the call failed, and its exception cannot be made here: {said_by(problem)}")
    if traceback and isinstance(error, BaseException):
        error.add_note(f"\nOn its node:\n{printable(traceback.rstrip())}")
    return error if isinstance(error, BaseException) else RemoteError(repr(error))


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001
        return "(its text cannot be had)"
