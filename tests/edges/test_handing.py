"""A lane that is handed to the runner: it serves over it by itself, and the conductor sees its end when all has ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from runner_rig import a_long_sleep, eventually, is_alive, runner_at_a_socket, running_with, sleeping

from cantle.allocations.fleet.certificates import Identity, make_identities
from cantle.allocations.fleet.handing import Handed, Told, hand_over, take_over
from cantle.allocations.fleet.lane import KEY_BYTES, TAKEN, Lane
from cantle.allocations.fleet.trust import context_of
from cantle.allocations.forking import LocalChannel, fork_runner
from cantle.model.study import Command
from cantle.runner.frames import Frames, encode, frame
from cantle.runner.messages import Ended, Setup, Start, Started, Up

KEY = b"k" * KEY_BYTES


class Conductor:
    """Its end of a lane, and what it has heard."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.lane = Lane(connection)
        self.frames: Frames[Up] = Frames(Up)

    def hear(self, timeout_s: float = 60.0) -> list[Up] | None:
        """What comes next, None at the end of the lane."""
        while True:
            assert select.select([self.lane], [], [], timeout_s)[0], "nothing came"
            try:
                data = self.lane.receive()
            except BlockingIOError:
                continue
            if not data:
                return None
            if heard := self.frames.feed(data):
                return heard

    def quiet(self) -> bool:
        """Whether the lane is there and nothing comes."""
        if not select.select([self.lane], [], [], 0.2)[0]:
            return True
        try:
            return bool(self.lane.receive())
        except BlockingIOError:
            return True


class Joined:
    """What the process does that has joined: a runner, and a copy of its lane."""

    def __init__(self, taken: bytes = TAKEN, own_env: bool = False, apart: bool = False) -> None:
        ours, theirs = make_identities("run-1")
        self.channel: LocalChannel = fork_runner(life=partial(take_over, identity=theirs))
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.copy = socket.create_connection(server.getsockname())
            plain, _ = server.accept()
        answering = threading.Thread(target=self._answer, args=(plain, ours, taken))
        answering.start()
        hand_over(self.channel.write_fd, self.copy, Handed(KEY, own_env, apart))
        answering.join(60)

    def _answer(self, plain: socket.socket, ours: Identity, taken: bytes) -> None:
        secured = context_of(ours, ssl.Purpose.CLIENT_AUTH).wrap_socket(plain, server_side=True)
        assert secured.recv(KEY_BYTES) == KEY
        secured.sendall(taken)
        self.conductor = Conductor(secured)

    def told(self) -> Told | None:
        """What the runner says, None when it has gone."""
        assert select.select([self.channel.read_fd], [], [], 60)[0], "it said nothing"
        data = self.channel.receive()
        return msgspec.msgpack.decode(data, type=Told) if data else None

    def close(self) -> None:
        self.channel.close()
        self.copy.close()
        self.conductor.lane.close()


@pytest.fixture
def joined() -> Iterator[Joined]:
    here = Joined()
    yield here
    here.close()


def setup_of(tmp_path: Path) -> bytes:
    env = {b"WHOSE": b"the run's", b"HOSTNAME": b"the conductor's", b"PATH": os.environb[b"PATH"]}
    return encode(Setup(str(tmp_path), env, lock="nodes/0.lock", packed="nodes/0", spool="nodes/0.spool", grace_s=0.2))


def begin(joined: Joined, tmp_path: Path, script: str) -> None:
    (tmp_path / "nodes").mkdir()
    assert joined.told() == Told("taken")
    start = Start((0, 1), Command(argv=("/bin/sh", "-c", script), output_stem="task"), "0")
    joined.conductor.lane.send(frame([setup_of(tmp_path), encode(start)]))
    assert joined.told() == Told("home", "nodes")


def test_a_runner_that_was_handed_a_lane_serves_over_it_and_has_this_machines_names(
    joined: Joined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(joined, tmp_path, 'echo "$WHOSE $HOSTNAME"; exec ls /proc/self/fd')
    heard: list[Up] = []
    while not heard or not isinstance(heard[-1], Ended):  # how long it takes decides whether its start is told before
        more = joined.conductor.hear()
        assert more is not None
        heard += more
    assert heard[-1].outcome == "done"
    [out] = tmp_path.glob("task.*.out")
    assert out.read_text() == f"the run's {os.environ.get('HOSTNAME', '')}\n0\n1\n2\n3\n", (
        "no descriptor of ours comes to a task; the last is the folder that is listed"
    )


def test_o40_tasks_with_the_environment_of_a_runner_in_a_job_see_the_job_and_nothing_of_its_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "WHOSE": "the runner's",
        "SLURM_JOB_ID": "9",
        "SLURM_NTASKS": "2",
        "SLURM_MEM_PER_CPU": "1",
    }.items():
        monkeypatch.setenv(name, value)
    joined = Joined(own_env=True)
    try:
        begin(joined, tmp_path, 'echo "$WHOSE|$SLURM_JOB_ID|$SLURM_NTASKS|$SLURM_MEM_PER_CPU"')
        heard: list[Up] = []
        while not heard or not isinstance(heard[-1], Ended):
            more = joined.conductor.hear()
            assert more is not None
            heard += more
        [out] = tmp_path.glob("task.*.out")
        assert out.read_text() == "the runner's|9||\n"
    finally:
        joined.close()


def test_when_the_conductor_ends_the_lane_the_runner_ends_its_tasks_and_says_so_when_that_is_done(
    joined: Joined, tmp_path: Path
) -> None:
    sleep = a_long_sleep(81)
    begin(joined, tmp_path, sleep)
    assert eventually(lambda: sleeping(sleep))
    joined.conductor.lane.close()
    assert joined.told() == Told("ended") and not running_with(sleep)
    assert joined.told() is None


@pytest.mark.parametrize("how", ["told to end", "killed"])
def test_the_conductor_sees_no_end_of_the_lane_before_all_has_ended_that_ran_there(
    joined: Joined, tmp_path: Path, how: str
) -> None:
    sleep = a_long_sleep(82)
    begin(joined, tmp_path, f"trap '' TERM; {sleep} & {sleep} & wait")
    heard = joined.conductor.hear()
    assert heard is not None and isinstance(heard[0], Started)
    assert eventually(lambda: len(sleeping(sleep)) == 2)
    if how == "killed":
        os.kill(joined.channel.pid, signal.SIGKILL)
        assert joined.told() is None and joined.conductor.quiet(), "its copy is open: nobody begins them elsewhere yet"
        for pid in running_with(sleep):  # whoever has joined inherits them, and does that
            os.kill(pid, signal.SIGKILL)
    joined.channel.close()
    assert eventually(lambda: not running_with(sleep)) and not is_alive(joined.channel.pid)
    assert joined.conductor.quiet()
    joined.copy.close()
    assert joined.conductor.hear() is None


def test_a_runner_whose_lane_is_not_taken_says_why_and_goes() -> None:
    joined = Joined(taken=b"?")
    assert joined.told() == Told("refused", "it has forgotten us meanwhile") and joined.told() is None
    joined.close()


def test_a_runner_that_is_never_handed_a_lane_goes_when_nobody_wants_it_any_more() -> None:
    channel = fork_runner(life=partial(take_over, identity=make_identities("run-1")[1]))
    channel.close()
    assert not is_alive(channel.pid)


def test_a_runner_that_sees_no_directory_makes_its_folders_or_says_why_it_cannot(tmp_path: Path) -> None:
    joined = Joined(apart=True)
    assert joined.told() == Told("taken")
    (tmp_path / "nodes").write_text("a file is in the way")
    joined.conductor.lane.send(frame([setup_of(tmp_path)]))
    told = joined.told()
    joined.close()
    assert told is not None and told.what == "broken"
    assert told.text == f"{tmp_path / 'nodes'} cannot be made: File exists"


def test_over_one_socket_for_both_ways_a_runner_hears_also_after_it_had_to_wait_with_what_it_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "nodes").mkdir()
    setup = Setup(str(tmp_path), dict(os.environb), lock="nodes/0.lock", packed="nodes/0", spool="nodes/0.spool")
    missing = Command(argv=("/nowhere/" + "x" * 400,), packed=True)
    many = 3000
    frames: Frames[Up] = Frames(Up)
    ends = 0
    with runner_at_a_socket() as ours:
        ours.sendall(frame([encode(setup)]))
        for first in range(0, many, 100):  # more than the socket holds is to be told before anybody reads
            ours.sendall(frame([encode(Start((n, 1), missing, str(n))) for n in range(first, first + 100)]))
        time.sleep(0.3)
        while ends < many:
            ends += sum(isinstance(message, Ended) for message in frames.feed(ours.recv(1 << 16)))
        ours.sendall(frame([encode(Start((many, 1), missing, "0"))]))
        while ends < many + 1:
            ends += sum(isinstance(message, Ended) for message in frames.feed(ours.recv(1 << 16)))
    assert ends == many + 1
