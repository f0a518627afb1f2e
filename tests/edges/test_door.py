"""Does a pilot's door let in its owner, and nobody else, and does no visitor keep the others waiting?"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from cantle.errors import PilotGoneError, RequestError
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot import door as doors
from cantle.runtime.pilot.address import Address, door_folder, published
from cantle.runtime.pilot.door import MOST_VISITORS, Door, Visitor
from cantle.runtime.pilot.messages import (
    MOST_ASKED,
    VERSION,
    Down,
    Going,
    Hello,
    Job,
    Jobs,
    Question,
    Sealed,
    Told,
    framed,
    proof,
    unframed,
)
from cantle.runtime.pilot.visiting import ask
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock

pytestmark = pytest.mark.real


class House:
    """A door with a loop behind it, in a thread, as a pilot has it."""

    def __init__(self, directory: Path) -> None:
        self.layout = Layout(directory).create()
        self.heard: list[Question] = []
        self.answers: dict[type, object] = {Jobs: Told([]), Down: Going(0)}
        self.lock = ConductorLock(self.layout.lock, "pilot test")
        self.lock.acquire()
        self.inbox = SelectInbox()
        self.door = Door(self.layout, self.inbox, self._hear)
        self._over = False
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()

    @property
    def address(self) -> Address:
        found = published(self.layout)
        assert found is not None
        return found

    def ask(self, question: Question) -> object:
        return ask(self.layout.directory, "test", question)

    def close(self) -> None:
        self._over = True
        self.inbox.wake()
        self._thread.join()
        self.door.close()
        self.inbox.close()
        self.lock.release()

    def _hear(self, question: Question, visitor: Visitor) -> None:
        self.heard.append(question)
        visitor.answer(self.answers[type(question)])  # type: ignore[arg-type]

    def _turn(self) -> None:
        while not self._over:
            self.inbox.wait(0.02)
            self.door.tend()


@contextmanager
def house(directory: Path) -> Iterator[House]:
    it = House(directory)
    try:
        yield it
    finally:
        it.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path is short enough for a socket, and that others may enter."""
    with tempfile.TemporaryDirectory(prefix="cantle-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def connect(address: Address) -> socket.socket:
    found = socket.socket(socket.AF_UNIX if address.kind == "unix" else socket.AF_INET)
    found.settimeout(60)
    found.connect(address.where if address.kind == "unix" else ("127.0.0.1", int(address.where)))
    return found


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    data = b""
    while True:
        try:
            more = connection.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not more:
            return data
        data += more


def hello_of(connection: socket.socket) -> Hello:
    data = b""
    while (hello := unframed(data, Hello, MOST_ASKED)) is None:
        data += connection.recv(1)
    return hello


def test_the_owner_is_heard_and_answered(short: Path) -> None:
    with house(short) as h:
        h.answers[Jobs] = Told([Job("a-1", "running", "/a", 3, 0, 1, 9)], True)
        assert h.ask(Jobs()) == Told([Job("a-1", "running", "/a", 3, 0, 1, 9)], True)
        assert h.ask(Down(now=True)) == Going(0)
        assert h.heard == [Jobs(), Down(now=True)]
        assert h.address.kind == "unix"


def test_only_the_owner_can_read_the_address_and_reach_the_socket(short: Path) -> None:
    with house(short) as h:
        folder = door_folder(h.layout)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {name.name: stat.S_IMODE(name.stat().st_mode) for name in folder.iterdir()} == {
            "address": 0o600,
            "socket": 0o600,
        }
    assert list(folder.iterdir()) == []


def test_where_the_path_is_too_long_for_a_socket_the_loopback_interface_serves(short: Path) -> None:
    with house(short / ("x" * 120)) as h:
        assert h.address.kind == "tcp"
        assert h.ask(Jobs()) == Told([])


def test_a_long_answer_arrives_whole(short: Path) -> None:
    jobs = [Job(f"study-{n}", "running", "/some/where/" + "x" * 100) for n in range(5000)]
    with house(short) as h:
        h.answers[Jobs] = Told(jobs)
        assert h.ask(Jobs()) == Told(jobs)


def impostor(text: bytes, make_proof: Callable[[Hello], bytes]) -> Callable[[Hello], bytes]:
    return lambda hello: framed(Sealed(b"n" * 16, text, make_proof(hello)))


QUESTION = msgspec.msgpack.encode(Down(now=True))

WRONG = {
    "nothing that is a message": lambda _: b"GET / HTTP/1.0\r\n\r\n",
    "a frame of nonsense": lambda _: b"\x00\x00\x00\x03abc",
    "a frame that is too long": lambda _: b"\x7f\xff\xff\xff",
    "a longer message than it says": lambda _: b"\x00\x00\x00\x01\x00\x00",
    "a frame without a bottom": lambda _: (
        (100_014).to_bytes(4, "big") + b"\x94" + 3 * b"\xc4\x02ab" + b"\x91" * 100_000 + b"\x90"
    ),
    "no proof": impostor(QUESTION, lambda _: b""),
    "a wrong secret": impostor(QUESTION, lambda hello: proof(b"guess", b"visitor", hello.nonce, b"n" * 16, QUESTION)),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("deep", ["", "x" * 120], ids=["socket", "loopback"])
def test_who_does_not_know_the_secret_is_sent_away_without_a_word(short: Path, what: str, deep: str) -> None:
    with house(short / deep) as h:
        with connect(h.address) as visitor:
            hello = hello_of(visitor)
            visitor.sendall(WRONG[what](hello))
            assert all_of(visitor) == b""
        assert h.heard == []
        assert h.ask(Jobs()) == Told([])


def test_a_recorded_conversation_is_worth_nothing(short: Path) -> None:
    with house(short) as h:
        with connect(h.address) as visitor:
            hello = hello_of(visitor)
            said = framed(
                Sealed(b"n" * 16, QUESTION, proof(h.address.secret, b"visitor", hello.nonce, b"n" * 16, QUESTION))
            )
            visitor.sendall(said)
            while not h.heard:
                time.sleep(0.01)
        with connect(h.address) as visitor:
            hello_of(visitor)
            visitor.sendall(said)
            assert all_of(visitor) == b""
        assert h.heard == [Down(now=True)]


def test_the_answer_of_one_who_does_not_know_the_secret_is_not_believed(short: Path) -> None:
    """Somebody else may listen where a dead pilot did."""
    with house(short / ("x" * 120)) as h:
        true = h.address
        with socket.create_server(("127.0.0.1", 0)) as other:

            def deceive() -> None:
                connection, _ = other.accept()
                with connection:
                    connection.sendall(framed(Hello(VERSION, b"h" * 16)))
                    connection.recv(1 << 16)
                    text = msgspec.msgpack.encode(Told([]))
                    connection.sendall(framed(Sealed(b"n" * 16, text, b"p" * 32)))

            thread = threading.Thread(target=deceive)
            thread.start()
            path = door_folder(h.layout) / "address"
            path.write_bytes(
                msgspec.json.encode(msgspec.structs.replace(true, where=str(other.getsockname()[1]), kind="tcp"))
            )
            with pytest.raises(PilotGoneError, match="somebody else answered"):
                h.ask(Jobs())
            thread.join()


def test_silent_visitors_are_sent_away_and_keep_nobody_waiting(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "PATIENCE_S", 600.0)
    with house(short) as h:
        silent = [connect(h.address) for _ in range(MOST_VISITORS - 1)]
        assert h.ask(Jobs()) == Told([])
        monkeypatch.setattr(doors, "monotonic", lambda: time.monotonic() + 601.0)
        assert [all_of(visitor)[4:5] for visitor in silent] == [b"\x92"] * len(silent), "hello, and then the end"
        for visitor in silent:
            visitor.close()


def test_more_visitors_than_there_is_room_for_are_turned_away_until_there_is(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "PATIENCE_S", 600.0)
    with house(short) as h:
        many = [connect(h.address) for _ in range(MOST_VISITORS)]
        for visitor in many:
            hello_of(visitor)
        with connect(h.address) as late:
            assert all_of(late) == b""
        for visitor in many:
            visitor.close()
        deadline = time.monotonic() + 60
        while True:
            try:
                assert h.ask(Jobs()) == Told([])
                break
            except PilotGoneError:
                assert time.monotonic() < deadline


def test_a_visitor_that_goes_in_the_middle_harms_nobody(short: Path) -> None:
    with house(short) as h:
        for said in (b"", b"\x00\x00", framed(Sealed(b"n" * 16, QUESTION, b""))[:-3]):
            visitor = connect(h.address)
            hello_of(visitor)
            visitor.sendall(said)
            visitor.close()
        assert h.ask(Jobs()) == Told([])


def test_a_pilot_that_is_not_up_is_told_from_one_that_never_was(short: Path) -> None:
    with pytest.raises(RequestError, match="there is no pilot test; begin one with: cantle up test"):
        ask(short / "nowhere", "test", Jobs())
    with house(short / "was") as h:
        h.layout.journal.write_text("")
    with pytest.raises(RequestError, match="the pilot test is not up; go on with it: cantle up test"):
        ask(short / "was", "test", Jobs())


KNOCK = """
import os, socket, sys
from pathlib import Path
folder = Path(sys.argv[1])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
for name in ("address", "socket"):
    try:
        (folder / name).open("rb").close()
    except OSError as error:
        print(name, type(error).__name__)
try:
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(60)
    found.connect(str(folder / "socket"))
    print("heard", len(found.recv(1000)))
except OSError as error:
    print("connect", type(error).__name__)
"""


def knock_as_another_user(h: House) -> list[str]:
    """What becomes of another user's attempts. Only the superuser can become another."""
    assert os.geteuid() == 0
    done = subprocess.run(
        [sys.executable, "-c", KNOCK, str(door_folder(h.layout))],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_another_user_gets_in_neither_at_the_folder_nor_past_the_kernel(short: Path) -> None:
    with house(short) as h:
        if os.geteuid() != 0:
            # Who cannot become another user sees to it that the kernel is asked, and that its word counts.
            with pytest.MonkeyPatch.context() as patch, connect(h.address) as visitor:
                patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
                with connect(h.address) as late:
                    assert all_of(late) == b""
                hello_of(visitor)
            return
        assert knock_as_another_user(h) == [
            "address PermissionError",
            "socket PermissionError",
            "connect PermissionError",
        ]
        door_folder(h.layout).chmod(0o777)
        (door_folder(h.layout) / "socket").chmod(0o777)
        assert knock_as_another_user(h)[-1] == "heard 0"
        assert h.ask(Jobs()) == Told([])
