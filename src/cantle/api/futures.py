"""What stands for a result that is not there yet, and how does one wait for it?

A `Future` is one of `concurrent.futures`, and may be awaited. Its result comes when it is asked for; until then it stays where
it was made. When nobody holds the future any more, the pilot may forget the result.
"""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping
from concurrent.futures._base import (
    CANCELLED,
    CANCELLED_AND_NOTIFIED,
    FINISHED,
    PENDING,
    RUNNING,
)
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from cantle.errors import RemoteError, WalltimeError, printable, said_by
from cantle.runner.calling.values import Buffer, unpack, unpack_error

if TYPE_CHECKING:
    from cantle.api.seat import Seat
    from cantle.runtime.pilot.sitting_messages import End, Fetched

T = TypeVar("T")
_TRIES = 3
"""So often a result is asked for that is gone when one wants to read it."""
_CANCELED = (CANCELLED, CANCELLED_AND_NOTIFIED)


class Future(concurrent.futures.Future[T]):
    """The result of one call, to come."""

    def __init__(self, seat: Seat, name: str, step: str, needs: tuple[Future[Any], ...] = ()) -> None:
        super().__init__()
        self.name = name
        """What `status` and `explain` call the task."""
        self.number = -1
        self.step = step
        self.file = ""
        self.needs = needs
        """Whose results it takes: until it is over, or if it was not begun, until somebody has seen why."""
        self._seat = seat
        self._end: End | None = None
        self._asked = False
        self._fetched: Fetched | None = None
        self._settled = False

    # What users call

    def result(self, timeout: float | None = None) -> T:
        """What the call returned. Waits for it, at most `timeout` seconds.

        Raises what the call raised, with the remote traceback as a note; DependencyError when one that it needs failed,
        whose error is then its `__cause__`; WalltimeError, RemoteError when its worker died, CancelledError, TimeoutError,
        or PilotGoneError.
        """
        deadline = None if timeout is None else monotonic() + timeout
        self._wait(timeout)
        if not self._settled:
            self._settle(deadline)
        if self._exception is not None:
            try:
                raise self._exception
            finally:
                self = None  # type: ignore[assignment]
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised, None when it returned. Does not fetch what stayed where it was made; otherwise as `result`."""
        self._wait(timeout)
        if not self._settled and not self._lies_elsewhere():
            self._settle(None)
        return self._exception

    def cancel(self) -> bool:
        """End the call, also one that runs, and all that needs it. False when it is over already."""
        with self._condition:
            if self._state == FINISHED:
                return False
            if self._state in _CANCELED:
                return True
            self._state = CANCELLED
            self.needs = ()
            self._condition.notify_all()
            self.set_running_or_notify_cancel()
        self._seat.cancel(self)
        self._tell()
        return True

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        import asyncio

        if not self.done():
            self._seat.flush()
            loop = asyncio.get_running_loop()
            over = loop.create_future()

            def reached() -> None:
                if not over.done():
                    over.set_result(None)

            def tell(_: object) -> None:
                try:
                    loop.call_soon_threadsafe(reached)
                except RuntimeError:  # the loop is closed: nobody waits
                    pass

            self.add_done_callback(tell)
            try:
                await over
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.cancelled():
            raise asyncio.CancelledError
        return await asyncio.to_thread(self.result) if self._lies_elsewhere() else self.result()

    def __repr__(self) -> str:
        return f"<Future {self.name} {self.condition}>"

    def _repr_html_(self) -> str:
        from cantle.api.views import html_of_futures

        return html_of_futures([self])

    @property
    def condition(self) -> str:
        """A word for people: waits, runs, done, canceled, or how it failed, as the pilot has it."""
        if self._end is not None:
            return self._end.phase
        if self._state in _CANCELED:
            return "canceled"
        return "failed" if self._state == FINISHED else "runs" if self._state == RUNNING else "waits"

    def __del__(self) -> None:
        if self.number >= 0:
            self._seat.dropped(self.number)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled by itself; hand it to a task as an argument, or in a list or dict that is one"
        )

    # What its seat calls

    def begun(self, back: bool) -> None:
        """It runs now, or waits again."""
        with self._condition:
            if self._state in (PENDING, RUNNING):
                self._state = PENDING if back else RUNNING

    def over(self, end: End) -> None:
        """The task is over."""
        canceled = end.phase == "canceled"
        with self._condition:
            if self._state in _CANCELED or self._state == FINISHED:
                return
            self._end = end
            if end.phase != "skipped":
                self.needs = ()
            if canceled:
                self._state = CANCELLED
                self._condition.notify_all()
                self.set_running_or_notify_cancel()
            else:
                self._state = FINISHED
                if end.phase in ("failed", "timedout"):
                    self._seat.unseen[self.number] = (self.name, end.why)
                for waiter in self._waiters:
                    if end.phase == "done":
                        waiter.add_result(self)
                    else:
                        waiter.add_exception(self)
                self._condition.notify_all()
        self._tell()

    def fetched(self, fetched: Fetched) -> None:
        """The result is here."""
        with self._condition:
            self._fetched = fetched
            self._condition.notify_all()

    def lost(self, error: BaseException) -> None:
        """Nothing will be heard of it any more."""
        with self._condition:
            if self._state == FINISHED or self._state in _CANCELED:
                if self._asked and self._fetched is None:
                    self._exception = error
                    self._settled = True
                    self._condition.notify_all()
                return
            self._exception = error
            self.needs = ()
            self._settled = True
            self._state = FINISHED
            for waiter in self._waiters:
                waiter.add_exception(self)
            self._condition.notify_all()
        self._tell()

    def ask(self) -> None:
        """Let the result be fetched, if it lies elsewhere and nobody asked before. Does not wait."""
        if self._lies_elsewhere() and not self._asked:
            self._asked = True
            self._seat.fetch(self)

    # Inside

    def _tell(self) -> None:
        if self._done_callbacks:  # type: ignore[attr-defined]
            self._seat.tell(self)

    def tell_callbacks(self) -> None:
        """Call whom the user wanted to be called, in this thread."""
        self._invoke_callbacks()  # type: ignore[attr-defined]

    def _lies_elsewhere(self) -> bool:
        end = self._end
        return not self._settled and end is not None and end.phase == "done" and end.value is None

    def _wait(self, timeout: float | None) -> None:
        if self._state == PENDING:
            self._seat.flush()
        with self._condition:
            if self._state in (PENDING, RUNNING):
                self._condition.wait_for(lambda: self._state not in (PENDING, RUNNING), timeout)
            if self._state in _CANCELED:
                raise concurrent.futures.CancelledError
            if self._state != FINISHED:
                raise TimeoutError

    def _settle(self, deadline: float | None) -> None:
        end = self._end
        assert end is not None
        if end.phase != "done":
            self._seat.unseen.pop(self.number, None)
            self._exception = _error_of(self, end)
            self.needs = ()
        elif end.value is not None:
            self._take(end.value)
        elif not self._fetch(deadline):
            return
        self._fetched = None
        self._settled = True

    def _take(self, packed: Buffer) -> None:
        try:
            self._result = unpack(packed)
        except Exception as error:  # noqa: BLE001 - whatever making it again raises is what is wrong with it
            said = said_by(error)
            self._exception = RemoteError(f"{self.name}: what it returned cannot be made again here: {said}")
            self._exception.__cause__ = error

    def _fetch(self, deadline: float | None) -> bool:
        """Have the result here. False when the pilot has gone, or somebody else has it, meanwhile. Raises TimeoutError."""
        for tries_left in reversed(range(_TRIES)):
            self.ask()
            self._seat.flush()
            with self._condition:
                left = None if deadline is None else deadline - monotonic()
                if not self._condition.wait_for(lambda: self._fetched is not None or self._settled, left):
                    raise TimeoutError
                fetched = self._fetched
            if fetched is None:
                return False
            if fetched.problem:
                self._exception = RemoteError(f"{self.name}: {fetched.problem}")
                break
            try:
                packed = _read(fetched)
            except OSError as error:  # its node went just now: the pilot learns of that, and has it made again
                if not tries_left:
                    self._exception = RemoteError(f"{self.name}: its result cannot be read at {fetched.path}: {error}")
                self._fetched, self._asked = None, False
                continue
            self._take(packed)
            break
        return True


def _read(fetched: Fetched) -> Buffer:
    if not fetched.path:
        return bytearray(fetched.value)
    from cantle.runner.calling.values import read_kept

    return read_kept(fetched.path)


def _error_of(future: Future[Any], end: End) -> BaseException:
    why = printable(f"{future.name}: {end.why or end.phase}")
    if end.value:
        error = unpack_error(end.value)
        if isinstance(error, Exception):
            return error
        # SystemExit or KeyboardInterrupt would end this program, which is not what its call meant.
        told = RemoteError(f"{future.name}: it raised {said_by(error)}")
        told.__cause__ = error
        return told
    if end.phase == "skipped":
        from cantle.api.blame import not_begun

        return not_begun(future, why)
    return WalltimeError(why) if end.phase == "timedout" else RemoteError(why)


class Futures(list[Future[T]]):
    """Futures in a row; a notebook shows how far they are."""

    def _repr_html_(self) -> str:
        from cantle.api.views import html_of_futures

        return html_of_futures(self)


# Waiting for several


@overload
def gather(
    futures: Iterable[Future[T]], *, return_exceptions: Literal[False] = False, timeout: float | None = None
) -> list[T]: ...
@overload
def gather(
    futures: Iterable[Future[T]], *, return_exceptions: bool, timeout: float | None = None
) -> list[T | BaseException]: ...
def gather(
    futures: Iterable[Future[T]], *others: object, return_exceptions: bool = False, timeout: float | None = None
) -> list[Any]:
    """The results of all, in their order.

    Raises the first error as soon as there is one (the others go on); with `return_exceptions` errors stand among the results.
    TimeoutError when some are not over, or not here, after `timeout` seconds.
    """
    if others:
        raise TypeError("cantle.gather takes one list of futures, as in cantle.gather([a, b]), and not several of them")
    wanted = _futures_in("gather", futures)
    deadline = None if timeout is None else monotonic() + timeout
    _flush(wanted)
    stop = concurrent.futures.ALL_COMPLETED if return_exceptions else concurrent.futures.FIRST_EXCEPTION
    done, left = concurrent.futures.wait(set(wanted), timeout, stop)
    if not return_exceptions:
        failed = [
            future for future in wanted if future in done and (future.cancelled() or future.exception() is not None)
        ]
        if failed:
            return [failed[0].result()]
    if left:
        raise TimeoutError(f"{len(left):,} of {len({*wanted}):,} calls are not over after {timeout:g} s")
    for future in wanted:
        if isinstance(future, Future):  # others of `concurrent.futures` may be among them
            future.ask()
    results: list[Any] = []
    for future in wanted:
        try:
            results.append(future.result(None if deadline is None else max(0.0, deadline - monotonic())))
        except (Exception, concurrent.futures.CancelledError) as error:
            late = isinstance(error, TimeoutError) and isinstance(future, Future) and not future._settled
            if late or not return_exceptions:
                raise
            results.append(error)
    return results


def wait(
    futures: Iterable[Future[T]], timeout: float | None = None, return_when: str = concurrent.futures.ALL_COMPLETED
) -> tuple[set[Future[T]], set[Future[T]]]:
    """Those that are over and those that are not, as `concurrent.futures.wait` has it."""
    wanted = set(_futures_in("wait", futures))
    _flush(wanted)
    done, left = concurrent.futures.wait(wanted, timeout, return_when)
    return done, left  # type: ignore[return-value]


class as_completed(Iterator[Future[T]]):  # noqa: N801 (people know it as a function)
    """Futures in the order in which they are over; for `for` and for `async for`.

    Raises TimeoutError when some are not over after `timeout` seconds.
    """

    def __init__(self, futures: Iterable[Future[T]], timeout: float | None = None) -> None:
        self._wanted = set(_futures_in("as_completed", futures))
        self._timeout = timeout
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Future[T]]:
        return self

    def __next__(self) -> Future[T]:
        if self._iterator is None:
            _flush(self._wanted)
            self._iterator = iter(concurrent.futures.as_completed(self._wanted, self._timeout))
            self._wanted = set()
        future: Future[T] = next(self._iterator)  # type: ignore[arg-type]
        return future

    async def __aiter__(self) -> AsyncIterator[Future[T]]:
        import asyncio

        loop = asyncio.get_running_loop()
        over: asyncio.Queue[Future[T]] = asyncio.Queue()

        def tell(future: Any) -> None:
            try:
                loop.call_soon_threadsafe(over.put_nowait, future)
            except RuntimeError:  # the loop is closed: nobody waits
                pass

        wanted, self._wanted = self._wanted, set()
        _flush(wanted)
        for future in wanted:
            future.add_done_callback(tell)
        deadline = None if self._timeout is None else loop.time() + self._timeout
        for _ in range(len(wanted)):
            yield await asyncio.wait_for(over.get(), None if deadline is None else deadline - loop.time())


def _futures_in(what: str, given: Iterable[Future[T]]) -> list[Future[T]]:
    """Raises TypeError for what is none of `concurrent.futures`, with what would help."""
    if isinstance(given, concurrent.futures.Future):
        raise TypeError(f"cantle.{what} takes several futures: give [future], or ask for future.result()")
    if isinstance(given, Mapping):
        raise TypeError(f"cantle.{what} takes futures, and not a mapping of them: give its .values()")
    found = list(given)
    for each in found:
        if not isinstance(each, concurrent.futures.Future):
            raise TypeError(f"cantle.{what} takes futures, which {each!r} is not")
    return found


def _flush(futures: Iterable[Future[Any]]) -> None:
    seats: deque[Any] = deque(maxlen=1)
    for future in futures:
        if (seat := getattr(future, "_seat", None)) is not None and seat not in seats:
            seat.flush()
            seats.append(seat)
