"""Files that go from machine to machine in pieces: Dask's servers in one process, over real connections."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cantle.allocations.carrying import Carried
from cantle.allocations.fleet import hauling
from cantle.allocations.fleet.certificates import make_identities
from cantle.allocations.fleet.dasked import configure, security_of
from cantle.allocations.fleet.hauling import Hauler, Shelf
from cantle.allocations.fleet.turning import turn

PIECE = 1000


class OwnShelf(Shelf):
    """A folder of its own, where a real one is the machine's."""

    def __init__(self, *folders: Path) -> None:
        super().__init__()
        self.folders = folders

    def paths(self, name: str) -> list[str]:
        return [str(folder / name) for folder in self.folders]


class Rig:
    """A conductor's server, and two of other machines."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.servers: list[Any] = []
        self.haulers: list[Hauler] = []

    async def begin(self) -> None:
        from distributed.core import Server

        ours, theirs = make_identities("run")
        for number in range(3):
            security = security_of(theirs if number else ours)
            server = Server({}, connection_args=security.get_connection_args("worker"), timeout=200.0, deserialize=True)
            self.servers.append(server)
            shelf = OwnShelf(self.top / f"memory-{number}", self.top / f"disk-{number}")
            await server.rpc.start()
            await server.listen("tls://127.0.0.1:0", **security.get_listen_args("worker"))
            self.haulers.append(Hauler(server, shelf, self.servers[0].address))

    async def end(self) -> None:
        for server in self.servers:
            await server.close()

    def address(self, number: int) -> str:
        return "" if not number else str(self.servers[number].address)

    async def carry(self, source: int, to: int, path: Path, at: str = "") -> Carried:
        return await self.haulers[0].carry(self.address(source), self.address(to), str(path), "7-1", at)


@pytest.fixture
def rigged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Rig], Awaitable[None]]], None]:
    monkeypatch.setattr(hauling, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(hauling, "_AGAIN_S", (0.01,))
    configure(20.0)

    def play(what: Callable[[Rig], Awaitable[None]]) -> None:
        async def whole() -> None:
            rig = Rig(tmp_path)
            await rig.begin()
            try:
                await what(rig)
            finally:
                await rig.end()

        turn(whole())

    return play


def a_file(top: Path, size: int) -> Path:
    path = top / "made"
    path.write_bytes(os.urandom(size))
    return path


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 7 * PIECE + 5])
@pytest.mark.parametrize(("source", "to"), [(1, 2), (0, 2), (1, 0)])
def test_a_file_of_any_size_comes_whole_from_any_machine_to_any_other(rigged, tmp_path, size, source, to) -> None:
    made = a_file(tmp_path, size)

    async def play(rig: Rig) -> None:
        carried = await rig.carry(source, to, made)
        assert carried == Carried(str(tmp_path / f"memory-{to}" / "7-1"), size)
        assert Path(carried.path).read_bytes() == made.read_bytes()
        assert [path.name for path in (tmp_path / f"memory-{to}").iterdir()] == ["7-1"], "nothing else is left"

    rigged(play)


def test_a_local_file_comes_to_the_path_that_it_has_elsewhere(rigged, tmp_path) -> None:
    made = a_file(tmp_path, 3 * PIECE)

    async def play(rig: Rig) -> None:
        there = str(tmp_path / "other" / "machine" / "out.bin")
        assert await rig.carry(1, 2, made, there) == Carried(there, 3 * PIECE)
        assert Path(there).read_bytes() == made.read_bytes()

    rigged(play)


def test_what_is_not_there_any_more_is_told_as_gone(rigged, tmp_path) -> None:
    async def play(rig: Rig) -> None:
        carried = await rig.carry(1, 2, tmp_path / "never")
        assert carried.gone and carried.problem == f"{tmp_path}/never is not there any more"
        assert not list(tmp_path.glob("memory-*/*"))

    rigged(play)


def test_nobody_holds_more_than_two_pieces_however_slowly_is_written(rigged, tmp_path, monkeypatch) -> None:
    made = a_file(tmp_path, 20 * PIECE)
    read: list[int] = []
    written: list[int] = []
    piece, put = hauling._piece, hauling._put
    monkeypatch.setattr(hauling, "_piece", lambda path, offset: (read.append(offset), piece(path, offset))[1])

    def slowly(file: int, data: bytes) -> None:
        assert len(read) - len(written) <= 2
        put(file, data)
        written.append(len(data))

    monkeypatch.setattr(hauling, "_put", slowly)

    async def play(rig: Rig) -> None:
        assert not (await rig.carry(1, 2, made)).problem
        assert len(written) == 20

    rigged(play)


def test_where_two_machines_do_not_reach_each_other_it_goes_through_the_conductor(rigged, tmp_path) -> None:
    made = a_file(tmp_path, 5 * PIECE)

    async def play(rig: Rig) -> None:
        real = rig.haulers[2]._ask
        asked: list[str] = []

        async def firewalled(server: str, what: str, patience_s: float, **rest: Any) -> dict[str, Any]:
            asked.append(server)
            if server == rig.address(1):
                return {"problem": "no route to host", "unreachable": server}
            return await real(server, what, patience_s, **rest)

        rig.haulers[2]._ask = firewalled  # type: ignore[method-assign]
        carried = await rig.carry(1, 2, made)
        assert Path(carried.path).read_bytes() == made.read_bytes()
        assert set(asked) == {rig.address(1), str(rig.servers[0].address)}

    rigged(play)


def test_a_machine_that_has_gone_is_told_as_gone_when_it_was_the_source_and_not_when_it_was_to_get_it(
    rigged, tmp_path
) -> None:
    made = a_file(tmp_path, PIECE)

    async def play(rig: Rig) -> None:
        address = rig.address(1)
        await rig.servers[1].close()
        for server in rig.servers:
            server.rpc.timeout = 0.3  # nobody is there, so it need not be long
        from_it = await rig.haulers[0].carry(address, rig.address(2), str(made), "7-1", "")
        to_it = await rig.haulers[0].carry(rig.address(2), address, str(made), "7-1", "")
        assert from_it.gone and "cannot be reached" in from_it.problem
        assert not to_it.gone and f"{address} cannot be reached" in to_it.problem

    rigged(play)


def test_when_memory_is_full_it_lies_on_disk_and_when_that_is_full_too_the_error_says_so(
    rigged, tmp_path, monkeypatch
) -> None:
    made = a_file(tmp_path, 3 * PIECE)
    put = hauling._put
    full: list[str] = ["memory-2"]

    def fills_up(file: int, data: bytes) -> None:
        where = os.readlink(f"/proc/self/fd/{file}")
        if any(name in where for name in full):
            raise OSError(errno.ENOSPC, "No space left on device")
        put(file, data)

    monkeypatch.setattr(hauling, "_put", fills_up)

    async def play(rig: Rig) -> None:
        assert (await rig.carry(1, 2, made)).path == str(tmp_path / "disk-2" / "7-1")
        full.append("disk-2")
        carried = await rig.carry(1, 2, made)
        assert not carried.gone and carried.problem.endswith("7-1: No space left on device")
        assert not list(tmp_path.glob("*/*.part"))

    rigged(play)


def test_a_file_that_shrinks_while_it_is_read_is_not_taken_for_whole(rigged, tmp_path, monkeypatch) -> None:
    made = a_file(tmp_path, 4 * PIECE)
    piece = hauling._piece

    def shrinking(path: str, offset: int) -> tuple[bytes, int]:
        if offset == 2 * PIECE:
            os.truncate(path, 2 * PIECE + 3)
        return piece(path, offset)

    monkeypatch.setattr(hauling, "_piece", shrinking)

    async def play(rig: Rig) -> None:
        carried = await rig.carry(1, 2, made)
        assert carried.gone and carried.problem.startswith(f"{made} has ")
        assert not list(tmp_path.glob("memory-2/*"))

    rigged(play)


def test_many_files_at_once_all_come(rigged, tmp_path) -> None:
    made = a_file(tmp_path, 9 * PIECE)

    async def play(rig: Rig) -> None:
        names = [f"{number}-1" for number in range(12)]
        carried = await asyncio.gather(
            *(rig.haulers[0].carry(rig.address(1), rig.address(2), str(made), name, "") for name in names)
        )
        assert [Path(each.path).name for each in carried] == names
        assert all(Path(each.path).read_bytes() == made.read_bytes() for each in carried)

    rigged(play)
