"""How does a node's runner live, from its setup to its farewell?

One thread, one loop: wait for the conductor's messages and for SIGCHLD; reap, look at the clock, obey, report. When the
conductor goes away (the channel ends), everything is ended, results that were not acknowledged go to the spool, and the
runner leaves.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH118, PTH119

from __future__ import annotations

import os
import select
import signal

from . import processes
from .channel import RunnersEnd
from .frames import Frames, encode, frame
from .keeper import Keeper
from .messages import Ack, Down, Leaving, Setup

_WAKES = 3
"""So many wake-ups are read at once: more than there are kinds of signal. What is left comes again."""


def serve(channel: RunnersEnd, settled: tuple[int, int] | None = None) -> None:
    """Serve until the conductor goes away. `settled` is what `settle` gave; it is done now if it was not."""
    wake, record = settled or settle()
    frames: Frames[Down] = Frames(Down)
    setup, early = _first(channel, frames)
    if setup is None:
        return
    try:
        lock = _lock(setup)
        if _has_hung_up(channel):
            return  # the conductor died while we were late: its run may have moved on without us
        poll = select.poll()
        keeper = Keeper(channel, setup, poll)
    except OSError as error:
        channel.send(frame([encode(Leaving(f"the runner could not begin: {error}"))]))
        return
    try:
        for message in early:
            keeper.obey(message)
        reason = _turn(keeper, channel, frames, wake, record, poll)
    except Exception as error:  # noqa: BLE001 (whatever it is, nothing may be left running)
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = (
            f"the runner broke: {type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        )
    try:
        keeper.farewell("lost", reason or "the conductor went away")
        if reason:
            keeper.reports.leave(reason)
    finally:
        if lock >= 0:
            os.close(lock)


def _turn(keeper: Keeper, channel: RunnersEnd, frames: Frames[Down], wake: int, record: int, poll: select.poll) -> str:
    """Turn the loop. Returns why it ended: "" when the conductor went away."""
    listening = channel.fileno()
    lifeline = channel.lifeline
    for fd in (listening, wake, *((lifeline,) if lifeline >= 0 else ())):
        poll.register(fd, select.POLLIN)
    one_for_both = channel.write_fd == listening
    waiting_to_write = False
    while True:
        try:
            if waiting_to_write:  # perhaps nothing more is to be told that would take it along
                channel.send(b"")
            keeper.push()
        except (BrokenPipeError, ConnectionError):
            _hear_the_rest(keeper, channel, frames)
            return ""
        if bool(channel.backlog) != waiting_to_write:
            waiting_to_write = not waiting_to_write
            if one_for_both:
                poll.modify(listening, select.POLLIN | select.POLLOUT if waiting_to_write else select.POLLIN)
            elif waiting_to_write:
                poll.register(channel.write_fd, select.POLLOUT)
            else:
                poll.unregister(channel.write_fd)
        heard = False
        for fd, _ in poll.poll(keeper.wait_ms()):
            if fd == wake:
                if signal.SIGTERM in os.read(wake, _WAKES * record)[::record]:
                    return "somebody sent SIGTERM to the runner"
                keeper.reap()
            elif fd == listening:
                heard = True
            elif fd == lifeline:
                return ""
            elif keeper.crew is not None:
                keeper.crew.hears(fd)
        keeper.tick()
        if heard:
            try:
                data = channel.receive()
            except BlockingIOError:
                continue
            if not data:
                return ""
            for message in frames.feed(data):
                keeper.obey(message)


def _hear_the_rest(keeper: Keeper, channel: RunnersEnd, frames: Frames[Down]) -> None:
    """Of a conductor that has gone, only the last acknowledgements still count."""
    try:
        while data := channel.receive():
            for message in frames.feed(data):
                if isinstance(message, Ack):
                    keeper.obey(message)
    except OSError:
        pass


def settle() -> tuple[int, int]:
    """Make this process a runner: its descriptors 0 to 2 become /dev/null, its session a new one.

    Returns the descriptor on which signals arrive, and the bytes that each has there.
    The first byte is the signal's number. Where the kernel's own descriptor for signals cannot be had, Python's wake-up
    descriptor serves, which costs an interrupted system call and a handler more for each.
    """
    try:
        os.setsid()
    except PermissionError:  # it leads a group already
        pass
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    processes.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    readable = processes.signal_descriptor((signal.SIGCHLD, signal.SIGTERM))
    if readable >= 0:
        return readable, processes.SIGNAL_RECORD
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.signal(signal.SIGTERM, _nothing)
    return readable, 1


def _nothing(number: int, frame: object) -> None:
    """Signals are read from the wake-up descriptor."""


def _first(channel: RunnersEnd, frames: Frames[Down]) -> tuple[Setup | None, list[Down]]:
    """Wait for the setup. Returns it and what came with it; None when the conductor left without a word."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    if channel.lifeline >= 0:
        poll.register(channel.lifeline, select.POLLIN)
    while True:
        if any(fd == channel.lifeline for fd, _ in poll.poll()):
            return None, []
        try:
            data = channel.receive()
        except BlockingIOError:
            continue
        if not data:
            return None, []
        messages = frames.feed(data)
        if messages:
            first = messages[0]
            if not isinstance(first, Setup):
                raise ValueError(f"the first message must be a Setup, not {type(first).__name__}")
            return first, messages[1:]


def _has_hung_up(channel: RunnersEnd) -> bool:
    """Whether the conductor has gone, whatever it may have said before."""
    poll = select.poll()
    for fd in (channel.fileno(), channel.lifeline):
        if fd >= 0:
            poll.register(fd, select.POLLRDHUP)
    return any(what & (select.POLLHUP | select.POLLERR | select.POLLRDHUP) for _, what in poll.poll(0))


def _lock(setup: Setup) -> int:
    """Hold the lock file for as long as this process lives."""
    if not setup.lock:
        return -1
    import fcntl

    path = os.path.join(setup.directory, setup.lock)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # an earlier runner is not gone yet: whoever resumed did not wait for it
        fcntl.lockf(fd, fcntl.LOCK_EX)
    return fd
