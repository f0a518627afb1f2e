"""The parts of the fleet that need no second process: who may join, by which address, and bytes that wait for nobody."""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import Queue

import pytest
from msgspec.structs import replace

from cantle.allocations.fleet import letter as letters
from cantle.allocations.fleet.addresses import addresses_of, chosen
from cantle.allocations.fleet.allocation import FleetAllocation
from cantle.allocations.fleet.certificates import make_identities
from cantle.allocations.fleet.joining import Hello, Verdict, arrived, judge, unique
from cantle.allocations.fleet.lane import KEY_BYTES, TAKEN, Lane, open_lane
from cantle.allocations.fleet.lanes import Lanes
from cantle.allocations.fleet.letter import Letter
from cantle.allocations.fleet.reaching import Reached, reach
from cantle.allocations.fleet.server import Broken, FleetServer, Joined, Listening
from cantle.allocations.fleet.source import Invitation, Report
from cantle.allocations.fleet.speech import version
from cantle.allocations.fleet.trust import context_of
from cantle.errors import RequestError
from cantle.model.records import Event, NodesAwaited, StopAsked
from cantle.model.resources import Node

HELLO = Hello("run-1", Node("n3", 4), "0.1.0", "3.11.7", 1000.0, "seen", "tls://10.0.0.1:1", "n3", 77)


def said(**changes: object) -> tuple[str, tuple[str, ...], float]:
    verdict = judge(replace(HELLO, **changes), "run-1", "0.1.0", "3.11.2", "/run/probe", "seen", 1000.0)
    return verdict.refusal, verdict.notes, verdict.ahead_s


def test_a_runner_like_ours_joins_without_a_word() -> None:
    assert said() == ("", (), 0.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "run-0"}, ["n3", "belongs to the run run-0", "this is run-1"]),
        ({"cantle": "0.2.0"}, ["n3", "Cantle 0.2.0", "0.1.0", "both must be the same"]),
        ({"sees": None}, ["n3", "does not see the run's directory", "/run/probe", "shared file system"]),
        ({"sees": "other"}, ["n3", "another file", "/run/probe"]),
        ({"node": Node("n3", 0)}, ["n3", "no core"]),
    ],
)
def test_each_mismatch_has_one_message_that_names_the_machine(changes: dict[str, object], words: list[str]) -> None:
    refusal, notes, _ = said(**changes)
    assert all(word in refusal for word in words) and not notes


def test_another_python_and_another_clock_are_told_and_no_reason_to_refuse() -> None:
    assert said(python="3.12.1") == (
        "",
        ("n3 runs Python 3.12.1, the conductor 3.11.2; for commands that does not matter",),
        0.0,
    )
    refusal, [note], ahead = said(time=1090.0)
    assert not refusal and ahead == 90.0 and "90 s ahead of the conductor's" in note
    assert said(time=998.0) == ("", (), -2.0), "corrected, but too little to speak of"
    assert said(time=1000.2) == ("", (), 0.0)


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert [unique("n", taken) for taken in (set(), {"n"}, {"n", "n-2", "n-4"})] == ["n", "n-2", "n-3"]


def test_nodes_that_came_together_are_told_of_together() -> None:
    nodes = [(Node(f"n{i}", 4), "10.0.0.1:5") for i in range(10)]
    assert arrived(nodes[:1]) == "1 node joined by 10.0.0.1:5: n0: 4 cores"
    assert arrived(nodes).startswith("10 nodes joined by 10.0.0.1:5: n0: 4 cores; n1: 4 cores; ")
    assert arrived(nodes).endswith("; n7: 4 cores; and 2 more, 40 cores in all")


def test_other_code_of_the_same_version_is_another_language() -> None:
    assert version().startswith("0.") and re.fullmatch(r".*, build [0-9a-f]{12}", version())
    refusal, _, _ = said(cantle="0.1.0, build 0123456789ab")
    assert "0.1.0, build 0123456789ab" in refusal and "both must be the same" in refusal


def test_a_letter_is_its_owners_alone_from_its_first_byte_on(tmp_path: Path) -> None:
    letter = _letter()
    path = tmp_path / "fleet" / "letter"
    mask = os.umask(0)
    try:
        letters.write(path, letter)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert letters.read(path) == letter
    path.chmod(0o640)
    with pytest.raises(RequestError, match="can be read by others"):
        letters.read(path)
    path.write_text("nonsense")
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 1234, -1)
        with pytest.raises(RequestError, match="belongs to user 1234"):
            letters.read(path)
        os.chown(path, 65534, -1)  # as where a network's file system cannot tell owners
        with pytest.raises(RequestError, match="no letter from a conductor"):
            letters.read(path)
        os.chown(path, 0, -1)
    with pytest.raises(RequestError, match="no letter from a conductor"):
        letters.read(path)
    with pytest.raises(RequestError, match="No such file"):
        letters.read(tmp_path / "none")
    letters.write(
        path, Letter(**{**{n: getattr(letter, n) for n in letter.__struct_fields__}, "mark": "cantle-letter-9"})
    )
    with pytest.raises(RequestError, match="another version of Cantle"):
        letters.read(path)


def _letter() -> Letter:
    identity = make_identities("r")[1]
    return Letter("r", ("tls://127.0.0.1:1",), identity, "/run", "/run/probe", "x", 20.0, "0.1.0", "3.11.7")


def test_the_authoritys_key_is_in_neither_identity() -> None:
    ours, theirs = make_identities("r" * 100)
    assert ours.authority == theirs.authority and ours.key != theirs.key
    for identity in (ours, theirs):
        assert identity.key.count("PRIVATE KEY") == 2 and "PRIVATE" not in identity.certificate + identity.authority


INTERFACES = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": ["192.0.2.2", "fe80::1%eth0", "2001:db8::2"],
    "ib0": ["10.1.0.7"],
}


def test_addresses_that_lead_outside_come_first_and_those_of_one_link_never() -> None:
    assert addresses_of(INTERFACES) == ["192.0.2.2", "10.1.0.7", "2001:db8::2", "127.0.0.1", "::1"]


def test_an_interface_is_chosen_by_name_or_by_address() -> None:
    assert chosen("", INTERFACES) == ("", ["192.0.2.2", "10.1.0.7", "127.0.0.1"])
    assert chosen("ib0", INTERFACES) == ("10.1.0.7", ["10.1.0.7"])
    assert chosen("192.0.2.2", INTERFACES) == ("192.0.2.2", ["192.0.2.2"])
    with pytest.raises(RequestError, match="no interface of this name; there are eth0, ib0, lo"):
        chosen("wlan0", INTERFACES)
    with pytest.raises(RequestError, match=r"has not that address, but 192\.0\.2\.2"):
        chosen("192.0.2.9", INTERFACES)


def test_o35_each_address_that_was_tried_is_named_with_what_came_of_it() -> None:
    with socket.socket() as closed:  # bound and not listening: refused at once
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        found = asyncio.run(reach([f"tls://127.0.0.1:{port}", "tls://nowhere.invalid:7"], make_identities("r")[1], 5))
    assert found.address == "" and len(found.tried) == 2
    assert found.tried[0].startswith(f"tls://127.0.0.1:{port}: ") and "refused" in found.tried[0].lower()
    assert found.tried[1].startswith("tls://nowhere.invalid:7: ")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_o35_the_one_that_answers_rightly_is_taken_wherever_it_stands_among_others(place: int) -> None:
    """Of the others one refuses at once, and one does not answer at all."""
    ours, theirs = make_identities("r")

    async def found() -> tuple[Reached, str]:
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context_of(ours, ssl.Purpose.CLIENT_AUTH)
        )
        right = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with socket.socket() as closed, socket.socket() as mute:
            closed.bind(("127.0.0.1", 0))
            mute.bind(("127.0.0.1", 0))
            mute.listen(1)
            addresses = [f"tls://127.0.0.1:{each.getsockname()[1]}" for each in (closed, mute)]
            addresses.insert(place, right)
            async with server:
                return await reach(addresses, theirs, 60), right

    reached, right = asyncio.run(found())
    assert reached.address == right


class _Inbox:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.watched: dict[int, Callable[[], None]] = {}

    def put(self, event: Event) -> None:
        self.events.append(event)

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self.watched[fd] = on_readable

    def unwatch(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def now(self) -> float:
        return 0.0


class _Source:
    """Expects three, of which one fails at once."""

    def start(self, invitation: Invitation, report: Report) -> None:
        self.command, self.report = invitation.command("--name", "n1", stdin=True), report
        report.expect(3)
        report.failed(1, "n9: Connection refused")

    def lost(self, name: str) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_an_allocation_counts_what_is_on_its_way_and_ends_in_order(tmp_path: Path) -> None:
    source = _Source()
    fleet = FleetAllocation([source], interface="127.0.0.1")
    inbox = _Inbox()
    fleet.house(tmp_path, tmp_path / "fleet")
    fleet.open(inbox)
    [first] = inbox.events
    assert isinstance(first, NodesAwaited) and first.count == 1, "until the source has said how many"
    [(fd, hear)] = inbox.watched.items()
    assert select.select([fd], [], [], 30)[0]
    hear()
    assert [e.count for e in inbox.events if isinstance(e, NodesAwaited)] == [1, 2]
    assert fleet.notes == ["n9: Connection refused"]
    assert source.command[1:6] == ["-m", "cantle", "runner", "--connect", "-"] and "--expected" in source.command
    fleet._put(Broken("its port is gone"))
    hear()
    assert [e.count for e in inbox.events if isinstance(e, NodesAwaited)] == [1, 2, 0], "nobody waits for ever"
    assert isinstance(inbox.events[-2], StopAsked), "the run is stopped, so that no task is called impossible"
    descriptors = {fleet._bell.fd, fleet._bell._ring}
    fleet.close()
    assert not descriptors & {int(name) for name in os.listdir("/proc/self/fd")}
    fleet._put(Broken("nobody hears it any more"))
    assert source.closed and not inbox.watched and not list((tmp_path / "fleet").iterdir())


@pytest.mark.parametrize("then", ["somebody is waited for", "it is lost"])
def test_who_has_come_is_told_before_what_is_said_later_although_others_are_still_awaited(
    tmp_path: Path, then: str
) -> None:
    source = _Source()
    fleet = FleetAllocation([source], interface="127.0.0.1")
    inbox = _Inbox()
    fleet.house(tmp_path, tmp_path / "fleet")
    fleet.open(inbox)
    [(fd, hear)] = inbox.watched.items()
    try:
        assert select.select([fd], [], [], 30)[0]
        hear()
        node = Node("n1", 2)
        hello = Hello("r", node, "0", "3.11.7", 0.0, None, "tls://10.0.0.1:5", "n1", 7, expected=True, source=0)
        fleet._put(Joined(hello, _Channel(), ()))
        hear()
        assert fleet.notes == ["n9: Connection refused"], "n2 may come in the next moment"
        if then == "it is lost":
            fleet.lost(node)
        else:
            source.report.note("n2 is missing after 15 s")
            hear()
        assert fleet.notes[1] == "1 node joined by 10.0.0.1:5: n1: 2 cores"
        assert fleet.notes[2:] == ([] if then == "it is lost" else ["n2 is missing after 15 s"])
    finally:
        fleet.close()


class _Channel:
    def close(self) -> None:
        pass


_MANY_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from cantle.allocations.fleet.allocation import FleetAllocation
from cantle.allocations.forking import fork_runner

def bound():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

allocation = FleetAllocation([])
allocation.prepare()
ours, theirs = bound(), os.pipe()
fork_runner(lambda: os.write(theirs[1], b"%d" % bound())).close()
print(ours, os.read(theirs[0], 20).decode(), flush=True)
os._exit(0)
"""


def test_a_conductor_of_many_runners_may_open_many_files_and_what_it_forks_as_many_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", _MANY_FILES], capture_output=True, text=True, timeout=200, check=True)
    ours, its = map(int, done.stdout.split())
    assert its == 256 < ours


@pytest.mark.parametrize("wanted", [True, False])
def test_a_runner_knows_whether_its_lane_was_taken_before_it_says_that_it_has_joined(wanted: bool) -> None:
    ours, theirs = make_identities("run-1")

    def take(key: bytes, connection: ssl.SSLSocket) -> bool:
        assert key == b"k" * KEY_BYTES
        if wanted:
            connection.send(TAKEN)
            lanes_taken.append(Lane(connection))
        return wanted

    async def both() -> str:
        lanes = Lanes("127.0.0.1", context_of(ours, ssl.Purpose.CLIENT_AUTH), take, refused.append)
        accepting = asyncio.create_task(lanes.accept())
        try:
            plain = socket.create_connection(("127.0.0.1", lanes.port))
            lane = await asyncio.to_thread(open_lane, plain, context_of(theirs), b"k" * KEY_BYTES)
        except OSError as error:
            return str(error)
        finally:
            accepting.cancel()
        lane.close()
        return ""

    lanes_taken: list[Lane] = []
    refused: list[str] = []
    assert asyncio.run(both()) == ("" if wanted else "it has forgotten us meanwhile")
    assert (len(lanes_taken), len(refused)) == ((1, 0) if wanted else (0, 1))
    for lane in lanes_taken:
        lane.close()
        lane.hang_up()  # too late, and nobody else's descriptor is touched


def test_a_server_that_cannot_give_signs_of_life_any_more_says_so_instead_of_falling_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_: FleetServer) -> None:
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(FleetServer, "_beat", broken)
    heard: Queue[object] = Queue()
    server = FleetServer("run-1", heard.put, lambda _: Verdict(), host="127.0.0.1")
    server.start()
    assert isinstance(heard.get(timeout=200), Listening)
    assert heard.get(timeout=200) == Broken("KeyError: 'what nobody thought of'")
    server.close()


def test_a_server_that_is_closed_ends_in_order_and_nobody_reaches_it_any_more() -> None:
    heard: Queue[object] = Queue()
    server = FleetServer("run-1", heard.put, lambda _: Verdict(), host="127.0.0.1")
    server.start()
    listening = heard.get(timeout=200)
    assert isinstance(listening, Listening)
    server.close()
    assert heard.empty()
    found = asyncio.run(reach(listening.addresses, listening.identity, 10.0))
    assert (found.address, found.tried) == ("", (f"{listening.addresses[0]}: Connection refused",))


def test_a_letter_from_a_file_comes_by_its_name_since_a_file_that_ends_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "letter").write_bytes(b"{}\n")
    with (tmp_path / "letter").open("rb") as file:
        words = [sys.executable, "-m", "cantle", "runner", "--connect", "-"]
        done = subprocess.run(words, stdin=file, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert "stdin is a file" in done.stderr and "--connect FILE" in done.stderr and "Traceback" not in done.stderr
