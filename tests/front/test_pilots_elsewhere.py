"""What is told of a pilot on another host, whose socket cannot be reached from here, and what can be asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from rundirs import cantle, demo

from cantle.errors import RequestError
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.address import Address, make_folder, publish
from cantle.runtime.pilot.letters import Letter, Letterbox
from cantle.runtime.pilot.messages import VERSION, Jobs, Refused, Sit, Submit, Taken, Told, Written
from cantle.runtime.pilot.visiting import stay
from cantle.store.layout import Layout
from cantle.store.lock import Holder


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The directory of one that lives in a batch job, on a node of its own."""
    place = tmp_path / "far"
    demo(place, until=8)
    make_folder(Layout(place))
    there = Holder("c1", 77, time.time(), time.time(), boot="another boot")
    Layout(place).lock.write_bytes(msgspec.json.encode(there) + b"\n")
    return place


def test_its_studies_are_told_from_its_directory(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("jobs", far) == 0
    first, heads, job = capsys.readouterr().out.splitlines()
    assert f"the pilot {far} is up (host c1, pid 77" in first and first.endswith("1 study, 1 not over")
    assert heads.split()[:2] == ["job", "state"] and job.split()[1] == "running"
    assert cantle("jobs", far, "--json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["state"] == "up"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text("description: {name: s, description: d}\nstudy: [{name: a, description: d, run: {cmd: 'true'}}]\n")
    return path


@contextmanager
def hearing(far: Path, heed: Callable[[Written, Letter], None]) -> Iterator[None]:
    """The pilot looks into its letterbox meanwhile."""
    address = Address("unix", "nowhere", b"s" * 32, "c1", 77, VERSION)
    publish(Layout(far), address)
    box = Letterbox(Layout(far), address.secret, heed)
    over = Event()

    def look() -> None:
        while not over.wait(0.02):
            box.look()

    thread = Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_one_that_hears_no_letters_is_told_from_where_it_can_be_asked(
    far: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(Layout(far), Address("unix", "nowhere", b"s" * 32, "c1", 77))
    assert cantle("submit", study, "--pilot", far, "-o", tmp_path / "out") == 1
    told = capsys.readouterr().err
    assert "is on host c1 (pid 77); ask it from there" in told
    assert "`ssh c1`" in told and "srun --jobid=JOB --overlap --nodelist=c1 COMMAND" in told


def test_a_study_is_given_to_it_through_the_directory(
    far: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Written] = []

    def heed(question: Written, letter: Letter) -> None:
        heard.append(question)
        letter.answer(Told([]) if isinstance(question, Jobs) else Taken("s-1"))

    with hearing(far, heed):
        assert cantle("submit", study, "--pilot", far, "-o", tmp_path / "out") == 0
    assert heard == [Jobs(), Submit(str(tmp_path / "out"))]
    assert f"s-1 is in the pilot {far}; its directory is {tmp_path / 'out'}" in capsys.readouterr().out
    sent = submission.get(Layout(tmp_path / "out"))
    assert sent is not None and sent.pilot == str(far)


def test_what_it_refuses_leaves_no_trace(
    far: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def heed(question: Written, letter: Letter) -> None:
        letter.answer(Told([]) if isinstance(question, Jobs) else Refused("it is not seen on host c1"))

    with hearing(far, heed):
        assert cantle("submit", study, "--pilot", far, "-o", tmp_path / "out") == 1
    assert "not seen on host c1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_it_tells_itself_that_it_takes_no_more(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hearing(far, lambda _, letter: letter.answer(Told([], draining=True))):
        assert cantle("jobs", far) == 0
    assert "is up, and ends when all studies are over" in capsys.readouterr().out


def test_a_program_that_would_stay_at_it_is_told_from_where_it_can(far: Path) -> None:
    publish(Layout(far), Address("unix", "nowhere", b"s" * 32, "c1", 77, VERSION))
    with pytest.raises(RequestError, match=r"is on host c1 .* ask it from there"):
        stay(far, str(far), Sit("p", "/p"))
