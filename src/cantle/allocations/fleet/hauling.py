"""How do files get from one machine of a fleet to another? In pieces, over the connections that Dask keeps between its servers.

Each server, a runner's worker or the conductor's scheduler, reads pieces of its own files to whoever asks, and fetches files
from others. Whoever fetches asks for the next piece while he writes one, so nobody holds more than two of them, however large
the file is and however slow somebody is. Where two machines do not reach each other, the pieces go through the conductor.
"""

# Paths stay text, and nothing here may wait: what takes time is done in threads.
# ruff: noqa: PTH103, PTH108, PTH118, PTH120

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cantle.allocations.carrying import Carried
from cantle.errors import MachineError

if TYPE_CHECKING:
    from distributed.core import Server

    from cantle.runner.calling.store import Store

T = TypeVar("T")

READ, FETCH = "cantle_read", "cantle_fetch"
PIECE_BYTES = 4 << 20
_AT_ONCE = 4
"""So many files are fetched at once; the others wait."""
_ANSWERS_S = 10.0
"""Who has not sent a first piece within that time cannot be reached from here."""
_STALLS_S = 120.0
"""Nor is waited longer for any other."""
_TAKES_S = 86400.0
_AGAIN_S = (0.5, 2.0, 5.0)
"""Who cannot be reached is tried again after these pauses: if he has gone, that is told meanwhile."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Fetched(Carried, frozen=True):
    """As what came of an errand; and which server is `unreachable`, if one is."""

    unreachable: str = ""


class Shelf:
    """Where what is brought to this machine lies: with what the runners keep here.

    `run` is the run's directory, `home` the folder in it for what belongs to runners. Both are set before anything is brought.
    It is held from when something is first brought until it is closed, so that it does not go with the last runner.
    """

    def __init__(self, run: str = "", home: str = "nodes") -> None:
        self.run = run
        self.home = home
        self._store: Store | None = None

    def paths(self, name: str) -> list[str]:
        """Where a file of this name may lie, the best first."""
        if self._store is None:
            from cantle.runner.calling.store import Store

            self._store = Store(self.run, self.home)
        return list(dict.fromkeys(os.path.join(folder, name) for folder in (self._store.folder, self._store.spare)))

    def close(self) -> None:
        """Leave it; if nobody else is there, all that lies there is removed."""
        if self._store is not None:
            self._store.close()


class Hauler:
    """Serves files of this machine to others, and puts theirs on the shelf. `conductor` is the address of its server.

    Used in the server's thread only.
    """

    def __init__(self, server: Server, shelf: Shelf, conductor: str = "") -> None:
        self._server = server
        self._shelf = shelf
        self._conductor = conductor
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._serial = 0
        handlers: dict[str, Callable[..., Any]] = {READ: self.read, FETCH: self.fetch}
        server.handlers.update(handlers)

    # What the conductor's own thread asks of its server

    async def carry(self, source: str, to: str, path: str, name: str, at: str) -> Carried:
        """Have the server `to` fetch a file of the server `source`; "" stands for us."""
        for pause in (*_AGAIN_S, -1.0):
            found = await self._carry(source, to, path, name, at)
            if not found.unreachable or pause < 0:
                break
            await asyncio.sleep(pause)
        gone = found.gone or bool(found.unreachable and found.unreachable != to)
        return Carried(found.path, found.size, found.problem, gone)

    async def _carry(self, source: str, to: str, path: str, name: str, at: str) -> Fetched:
        if not to:
            return await self._fetch(source, path, name, at, "")
        errand = {"path": path, "name": name, "at": at}
        direct = await self._send(to, source, "", errand)
        if not direct.unreachable or direct.unreachable == to or not source:
            return direct
        return await self._send(to, "", source, errand)

    async def _send(self, to: str, source: str, of: str, errand: dict[str, str]) -> Fetched:
        answer = await self._ask(to, FETCH, _TAKES_S, source=source, of=of, **errand)
        try:
            return msgspec.convert(answer, Fetched)
        except (msgspec.ValidationError, RecursionError):
            return Fetched(problem=f"{to} does not understand: {str(answer)[:200]}")

    # What others ask of us

    async def read(self, path: str, offset: int, of: str = "") -> dict[str, Any]:
        """A piece of a file, and how large it is; with `of` the file is that server's, whom we reach and the other does not."""
        if of:
            return await self._ask(of, READ, _STALLS_S, path=path, offset=offset)
        try:
            data, size = await _aside(_piece, path, offset)
        except FileNotFoundError:
            return {"problem": f"{path} is not there any more", "gone": True}
        except OSError as error:
            return {"problem": f"{path}: {error.strerror}", "gone": True}
        return {"data": data, "size": size}

    async def fetch(self, source: str, path: str, name: str, at: str = "", of: str = "") -> dict[str, Any]:
        """Fetch a file of that server ("": the conductor), to the path `at`, or by `name` to our shelf: fields of `Fetched`."""
        return msgspec.structs.asdict(await self._fetch(source or self._conductor, path, name, at, of))

    # What these are made of

    async def _ask(self, server: str, what: str, patience_s: float, **rest: Any) -> dict[str, Any]:
        try:
            async with asyncio.timeout(patience_s):
                answer = await getattr(self._server.rpc(server), what)(**rest)
        except (OSError, TimeoutError) as error:
            said = str(error) or f"no answer within {patience_s:g} s"
            return {"problem": f"{server} cannot be reached: {said}", "unreachable": server}
        return answer if isinstance(answer, dict) else {"problem": f"{server} does not understand: {str(answer)[:200]}"}

    async def _fetch(self, source: str, path: str, name: str, at: str, of: str) -> Fetched:
        async with self._free:
            first = await self._ask(source, READ, _ANSWERS_S, path=path, offset=0, of=of)
            if "data" not in first:
                return _failed(first)
            try:
                targets = [at] if at else await _aside(self._shelf.paths, name)
                for number, target in enumerate(targets, 1):
                    try:
                        return await self._write(source, path, target, of, first)
                    except OSError as error:
                        if number == len(targets) or error.errno not in _NO_ROOM:
                            raise
            except OSError as error:
                return Fetched(problem=f"{os.uname().nodename}: {error.filename or at or name}: {error.strerror}")
        raise MachineError(f"there is no place on {os.uname().nodename} for {name}")

    async def _write(self, source: str, path: str, target: str, of: str, first: dict[str, Any]) -> Fetched:
        """Piece by piece beside the target, then into its place. Raises OSError when there is no room, for example."""
        self._serial += 1
        beside = f"{target}.{os.getpid()}-{self._serial}.part"
        file = await _aside(_begin, beside)
        try:
            piece, size, written = first, first["size"], 0
            while True:
                data = piece["data"]
                following = None
                if data and written + len(data) < size:
                    at = written + len(data)
                    asking = self._ask(source, READ, _STALLS_S, path=path, offset=at, of=of)
                    following = asyncio.ensure_future(asking)
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
                if "data" not in piece:
                    return _failed(piece)
            if written != size:
                return Fetched(problem=f"{path} has {size:,} bytes, and {written:,} came", gone=True)
            await _aside(os.replace, beside, target)
            return Fetched(target, size)
        finally:
            os.close(file)
            with suppress(OSError):
                os.unlink(beside)


def _failed(answer: dict[str, Any]) -> Fetched:
    return Fetched(
        problem=str(answer.get("problem", answer)),
        gone=bool(answer.get("gone")),
        unreachable=str(answer.get("unreachable", "")),
    )


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
