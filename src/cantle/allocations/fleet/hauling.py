"""How do files get from one machine of a fleet to another? In pieces, over the connections that Dask keeps between its servers.

Each server, a runner's worker or the conductor's scheduler, reads pieces of its own files to whoever asks, and fetches files
from others. Whoever fetches asks for the next piece when it writes one, so nobody holds more than two of them, however large
the file is and however slow somebody is. Where two machines do not reach each other, the pieces go through the conductor.
"""

# Paths stay text, and nothing here may wait: what takes time is done in threads.
# ruff: noqa: PTH100, PTH103, PTH105, PTH107, PTH108, PTH110, PTH118, PTH120, ASYNC240

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from distributed.core import Server

T = TypeVar("T")

READ, FETCH, REMOVE = "cantle_read", "cantle_fetch", "cantle_remove"
PIECE_BYTES = 4 << 20
_AT_ONCE = 4
"""So many files are fetched at once; the others wait."""
_ANSWERS_S = 10.0
"""Who has not sent a first piece within that time cannot be reached from here."""
_STALLS_S = 120.0
"""Nor is waited longer for any other."""


class Fetched(msgspec.Struct, frozen=True):
    """The file lies at `path` now; or there is a `problem`: it is `gone` from where it was, or its machine is `unreachable`."""

    path: str = ""
    size: int = 0
    problem: str = ""
    gone: bool = False
    unreachable: bool = False


class Hauler:
    """Serves files of this machine to others, and fetches theirs into the first of these `folders` that has the room.

    Used in the server's thread only.
    """

    def __init__(self, server: Server, folders: Sequence[str]) -> None:
        self._server = server
        self._folders = folders
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._serial = 0
        handlers: dict[str, Callable[..., Any]] = {READ: self.read, FETCH: self.fetch, REMOVE: self.remove}
        server.handlers.update(handlers)

    # What others ask of us

    async def read(self, path: str, offset: int, of: str = "") -> dict[str, Any]:
        """A piece of a file, and how large it is; with `of` the file is that server's, which we reach and he does not."""
        if of:
            return await self._ask(of, READ, _STALLS_S, path=path, offset=offset)
        try:
            data, size = await _aside(_piece, path, offset)
        except FileNotFoundError:
            return {"problem": f"{path} is not there any more", "gone": True}
        except OSError as error:
            return {"problem": f"{path}: {error.strerror}"}
        return {"data": data, "size": size}

    async def fetch(
        self, source: str, path: str, name: str, to: str = "", of: str = "", linked: bool = False
    ) -> dict[str, Any]:
        """Fetch a file of that server, to the path `to` or by `name` into our own folder: fields of `Fetched`.

        `linked`: it lies on this machine, and may be the same file.
        """
        async with self._free:
            if linked:
                found = await _aside(self._link, path, name, to)
            else:
                found = await self._fetch(source, path, name, to, of)
        return msgspec.structs.asdict(found)

    async def remove(self, names: list[str]) -> None:
        """Remove what was fetched by these names."""
        for name in names:
            for folder in self._folders:
                with suppress(OSError):
                    await _aside(os.unlink, os.path.join(folder, name))

    # What these are made of

    async def _ask(self, server: str, what: str, patience_s: float, **rest: Any) -> dict[str, Any]:
        try:
            async with asyncio.timeout(patience_s):
                answer = await getattr(self._server.rpc(server), what)(**rest)
        except (OSError, TimeoutError) as error:
            said = str(error) or f"no answer within {patience_s:g} s"
            return {"problem": f"{server} cannot be reached: {said}", "unreachable": True}
        if not isinstance(answer, dict) or not answer.keys() <= {"data", "size", "problem", "gone", "unreachable"}:
            return {"problem": f"{server} does not understand: {str(answer)[:200]}"}
        return answer

    async def _fetch(self, source: str, path: str, name: str, to: str, of: str) -> Fetched:
        first = await self._ask(source, READ, _ANSWERS_S, path=path, offset=0, of=of)
        if "problem" in first:
            return Fetched(**first)
        problem: OSError | None = None
        for target in self._targets(name, to):
            try:
                return await self._write(source, path, target, of, first)
            except OSError as error:
                problem = error
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    break
        assert problem is not None
        return Fetched(problem=f"{os.uname().nodename}: {problem.filename or to or name}: {problem.strerror}")

    async def _write(self, source: str, path: str, target: str, of: str, first: dict[str, Any]) -> Fetched:
        """Piece by piece beside the target, then into its place. Raises OSError when there is no room, for example."""
        size = first["size"]
        beside = self._beside(target)
        piece = first
        file = await _aside(_begin, beside)
        try:
            written = 0
            while True:
                data = piece["data"]
                following = None
                if data and written + len(data) < size:
                    at = written + len(data)
                    following = asyncio.ensure_future(self._ask(source, READ, _STALLS_S, path=path, offset=at, of=of))
                try:
                    await _aside(_put, file, data)
                except OSError:
                    if following is not None:
                        following.cancel()
                    raise
                written += len(data)
                if following is None:
                    break
                piece = await following
                if "problem" in piece:
                    return Fetched(**piece)
            if written != size:
                return Fetched(problem=f"{path} has {size:,} bytes, and {written:,} came")
            await _aside(os.replace, beside, target)
            return Fetched(target, size)
        finally:
            os.close(file)
            with suppress(OSError):
                os.unlink(beside)

    def _link(self, path: str, name: str, to: str) -> Fetched:
        """It lies on this machine: let it lie there under another name as well, so that it outlives the first."""
        problem = ""
        for target in self._targets(name, to):
            beside = self._beside(target)
            try:
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
                _link_or_copy(path, beside)
                os.replace(beside, target)
                return Fetched(target, os.stat(target).st_size)  # noqa: PTH116
            except FileNotFoundError:
                return Fetched(problem=f"{path} is not there any more", gone=True)
            except OSError as error:
                problem = f"{error.filename or target}: {error.strerror}"
                with suppress(OSError):
                    os.unlink(beside)
        return Fetched(problem=problem)

    def _targets(self, name: str, to: str) -> list[str]:
        return [to] if to else [os.path.join(folder, name) for folder in self._folders]

    def _beside(self, target: str) -> str:
        self._serial += 1
        return f"{target}.{os.getpid()}-{self._serial}.part"


async def _aside(what: Callable[..., T], *given: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, what, *given)


def _piece(path: str, offset: int) -> tuple[bytes, int]:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), PIECE_BYTES, offset), size


def _begin(path: str) -> int:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _put(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _link_or_copy(path: str, beside: str) -> None:
    try:
        os.link(path, beside)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        from shutil import copyfile

        copyfile(path, beside)
