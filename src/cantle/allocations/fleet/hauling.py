"""How do files get from one machine of a fleet to another? In pieces, over the connections that Dask keeps between its servers.

Each server, a runner's worker or the conductor's scheduler, reads pieces of its own files to whoever asks, and fetches files
from others. Whoever fetches asks for the next piece when it writes one, so nobody holds more than two of them, however large
the file is and however slow somebody is. Where two machines do not reach each other, the pieces go through the conductor.
"""

# Paths stay text, and nothing here may wait: what takes time is done in threads.
# ruff: noqa: PTH103, PTH108, PTH120

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cantle.allocations.carrying import Carried, Shelf, give_second_name

if TYPE_CHECKING:
    from distributed.core import Server

T = TypeVar("T")

READ, FETCH, REMOVE = "cantle_read", "cantle_fetch", "cantle_remove"
PIECE_BYTES = 4 << 20
_FIELDS = {"data", "path", "size", "problem", "gone", "unreachable"}
_AT_ONCE = 4
"""So many files are fetched at once; the others wait."""
_ANSWERS_S = 10.0
"""Who has not sent a first piece within that time cannot be reached from here."""
_TAKES_S = 86400.0
_STALLS_S = 120.0
"""Nor is waited longer for any other."""


class Fetched(Carried, frozen=True):
    """As what came of an errand; and whether it failed since the machine where the file lies is `unreachable` from here."""

    unreachable: bool = False


class Hauler:
    """Serves files of this machine to others, and puts theirs on the shelf.

    `conductor` is the address of the conductor's server. Used in the server's thread only.
    """

    def __init__(self, server: Server, shelf: Shelf, conductor: str = "") -> None:
        self._server = server
        self._shelf = shelf
        self._conductor = conductor
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._serial = 0
        handlers: dict[str, Callable[..., Any]] = {READ: self.read, FETCH: self.fetch, REMOVE: self.remove}
        server.handlers.update(handlers)

    # What the conductor's server does, which is asked by its own thread

    async def carry(self, source: str, to: str, path: str, name: str, at: str, linked: bool) -> Carried:
        """Have the server `to` fetch a file of the server `source`; "" stands for us."""
        if not to:
            found = await self.fetch(source, path, name, at, linked=linked)
        else:
            errand = {"path": path, "name": name, "to": at, "linked": linked}
            found = await self.ask(to, FETCH, _TAKES_S, source=source, **errand)
            if found.get("unreachable") and source:
                through_us = await self.ask(to, FETCH, _TAKES_S, source="", of=source, **errand)
                found = found if through_us.get("unreachable") else through_us
        return msgspec.convert(found, Carried)

    async def discard(self, to: str, names: list[str]) -> None:
        """Have that server remove what it fetched by these names; "" stands for us."""
        if to:
            await self.ask(to, REMOVE, _ANSWERS_S, names=names)
        else:
            await self.remove(names)

    # What others ask of us

    async def read(self, path: str, offset: int, of: str = "") -> dict[str, Any]:
        """A piece of a file, and how large it is; with `of` the file is that server's, which we reach and he does not."""
        if of:
            return await self.ask(of, READ, _STALLS_S, path=path, offset=offset)
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
        """Fetch a file of that server ("": the conductor), to the path `to`, or by `name` to our shelf: fields of `Fetched`.

        `linked`: it lies on this machine, and may be the same file.
        """
        async with self._free:
            if linked:
                return msgspec.structs.asdict(await _aside(give_second_name, path, await self._targets(name, to)))
            return msgspec.structs.asdict(await self._fetch(source or self._conductor, path, name, to, of))

    async def remove(self, names: list[str]) -> dict[str, Any]:
        """Remove what was fetched by these names."""
        await _aside(self._shelf.remove, names)
        return {}

    # What we ask of others

    async def ask(self, server: str, what: str, patience_s: float, **rest: Any) -> dict[str, Any]:
        """Ask the server of that address. `problem` and `unreachable` in the answer when there is none."""
        try:
            async with asyncio.timeout(patience_s):
                answer = await getattr(self._server.rpc(server), what)(**rest)
        except (OSError, TimeoutError) as error:
            said = str(error) or f"no answer within {patience_s:g} s"
            return {"problem": f"{server} cannot be reached: {said}", "unreachable": True}
        if not isinstance(answer, dict) or not answer.keys() <= _FIELDS:
            return {"problem": f"{server} does not understand: {str(answer)[:200]}"}
        return answer

    async def _fetch(self, source: str, path: str, name: str, to: str, of: str) -> Fetched:
        first = await self.ask(source, READ, _ANSWERS_S, path=path, offset=0, of=of)
        if "problem" in first:
            return Fetched(**first)
        problem: OSError | None = None
        for target in await self._targets(name, to):
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
                    following = asyncio.ensure_future(self.ask(source, READ, _STALLS_S, path=path, offset=at, of=of))
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

    async def _targets(self, name: str, to: str) -> list[str]:
        return [to] if to else await _aside(self._shelf.paths, name)

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
