"""Is a pilot that cannot be reached by its socket heard through its directory, and is it known what became of each letter?"""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cantle.errors import MachineError, PilotGoneError
from cantle.runtime.pilot import letters
from cantle.runtime.pilot.address import Address, door_folder, make_folder, new_secret
from cantle.runtime.pilot.letters import Letter, Letterbox, ask_by_letter
from cantle.runtime.pilot.messages import Answer, Down, Going, Jobs, Submit, Taken, Told, Written
from cantle.store.identity import Holder
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock, holder

pytestmark = pytest.mark.real


class Pilot:
    """One that holds its lock, and looks into its letterbox when told to. Questions are kept until they are answered."""

    def __init__(self, directory: Path) -> None:
        self.layout = Layout(directory).create()
        self.lock = ConductorLock(self.layout.lock, "pilot test")
        self.lock.acquire()
        self.folder = make_folder(self.layout)
        self.address = Address("unix", "nowhere", new_secret(), "far", 1, 2)
        self.box = Letterbox(
            self.layout, self.address.secret, lambda question, letter: self.heard.append((question, letter))
        )
        self.heard: list[tuple[Written, Letter]] = []
        found = holder(self.layout.lock)
        assert found is not None
        self.there: Holder = found
        self.visitors = ThreadPoolExecutor()
        self.asking: list[Future[Answer]] = []

    def asked(self, question: Written, timeout_s: float | None = None, secret: bytes = b"") -> Future[Answer]:
        """Somebody asks, and waits."""
        address = Address("unix", "nowhere", secret or self.address.secret, "far", 1, 2)
        waiting = self.visitors.submit(ask_by_letter, self.layout, "test", self.there, address, question, timeout_s)
        self.asking.append(waiting)
        return waiting

    def hears(self) -> tuple[Written, Letter]:
        """The next question. Raises what an asker raised instead of waiting for it."""
        while not self.heard:
            self.box.look()
            for waiting in self.asking:
                if waiting.done():
                    waiting.result()
        return self.heard.pop(0)

    def files(self) -> list[str]:
        return sorted(path.suffix for path in self.folder.iterdir())


@pytest.fixture
def pilot(tmp_path: Path) -> Iterator[Pilot]:
    it = Pilot(tmp_path)
    yield it
    it.lock.release()
    it.visitors.shutdown()


def test_a_letter_is_answered_and_nothing_is_left_of_it(pilot: Pilot) -> None:
    waiting = pilot.asked(Down(now=True))
    question, letter = pilot.hears()
    assert question == Down(now=True) and not waiting.done()
    letter.answer(Going(3))
    assert waiting.result(60) == Going(3)
    assert pilot.files() == []


def test_several_are_answered_in_any_order(pilot: Pilot) -> None:
    first = pilot.asked(Submit("/a"))
    one = pilot.hears()
    second = pilot.asked(Jobs())
    pilot.hears()[1].answer(Told([], draining=True))
    assert second.result(60) == Told([], draining=True)
    one[1].answer(Taken("a-1"))
    assert first.result(60) == Taken("a-1")


def test_nobody_else_may_read_them(pilot: Pilot, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = pilot.asked(Jobs())
    _, letter = pilot.hears()
    seen = threading.Event()
    monkeypatch.setattr(letters, "_fetched", lambda *_: None if not seen.is_set() else Told([]))
    letter.answer(Told([]))
    (answer,) = pilot.folder.iterdir()
    assert stat.S_IMODE(answer.stat().st_mode) == 0o600 and stat.S_IMODE(pilot.folder.stat().st_mode) == 0o700
    seen.set()
    waiting.result(60)


def test_what_was_not_heard_in_time_is_withdrawn_and_never_heard(pilot: Pilot) -> None:
    with pytest.raises(PilotGoneError, match=r"did not answer within 0\.2 s; it has not heard it"):
        pilot.asked(Submit("/a"), timeout_s=0.2).result(60)
    pilot.box.look()
    assert pilot.heard == [] and pilot.files() == []


def test_who_heard_and_went_away_without_an_answer_may_have_done_it(pilot: Pilot) -> None:
    waiting = pilot.asked(Submit("/a"))
    pilot.hears()
    pilot.lock.release()
    with pytest.raises(PilotGoneError, match="it may have heard it"):
        waiting.result(60)


def test_a_pilot_that_goes_away_is_not_waited_for(pilot: Pilot) -> None:
    waiting = pilot.asked(Jobs())
    pilot.lock.release()
    with pytest.raises(PilotGoneError, match="it went away; it has not heard it"):
        waiting.result(60)


def test_another_pilot_in_the_same_directory_does_not_hear_it(pilot: Pilot) -> None:
    waiting = pilot.asked(Jobs(), timeout_s=2, secret=new_secret())
    while ".asked" in pilot.files() or not waiting.done():
        pilot.box.look()
    assert pilot.heard == [] and isinstance(waiting.exception(60), PilotGoneError)


def test_the_last_answer_of_a_pilot_that_has_ended_is_read(pilot: Pilot) -> None:
    waiting = pilot.asked(Down())
    _, letter = pilot.hears()
    letter.answer(Going(0))
    pilot.lock.release()
    assert waiting.result(60) == Going(0)


def test_an_answer_that_finds_no_room_is_written_later(pilot: Pilot, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = pilot.asked(Jobs())
    _, letter = pilot.hears()
    with monkeypatch.context() as full:

        def refuse(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(letters, "_write", refuse)
        letter.answer(Told([]))
        pilot.box.look()
        assert not waiting.done() and pilot.files() == []
    pilot.box.look()
    assert waiting.result(60) == Told([])


def test_an_answer_that_nobody_comes_for_is_put_away(pilot: Pilot, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = pilot.asked(Jobs())
    _, letter = pilot.hears()
    pilot.lock.release()
    assert waiting.exception(60) is not None
    letter.answer(Told([]))
    pilot.box.look()
    assert pilot.files() == [".answered"]
    monkeypatch.setattr(letters, "KEPT_S", -1.0)
    pilot.box.look()
    assert pilot.files() == []


def test_nonsense_is_removed_and_not_heard(pilot: Pilot) -> None:
    (pilot.folder / "1.asked").write_bytes(b"nonsense")
    pilot.box.look()
    assert pilot.heard == [] and pilot.files() == []


def test_a_letter_that_is_being_written_is_left_alone_until_all_of_it_is_there(pilot: Pilot) -> None:
    written = pilot.asked(Jobs())
    _, letter = pilot.hears()
    letter.answer(Told([]))
    written.result(60)
    half = pilot.folder / ".1.asked"
    half.write_bytes(b"half of")
    pilot.box.look()
    assert half.read_bytes() == b"half of" and pilot.heard == []


def test_who_cannot_leave_a_letter_is_told_where_and_why(pilot: Pilot) -> None:
    door_folder(pilot.layout).rmdir()
    with pytest.raises(MachineError, match=r"cannot leave a letter to the pilot test in .*door: it does not exist"):
        pilot.asked(Jobs()).result(60)
