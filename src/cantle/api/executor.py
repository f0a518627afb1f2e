"""How do libraries that know `concurrent.futures` alone use a pilot?"""

from __future__ import annotations

import concurrent.futures
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from cantle.api.needs import Options, step_of
from cantle.api.tasks import Task, is_lasting, name_of

if TYPE_CHECKING:
    from cantle.api.futures import Future
    from cantle.api.pilot import Pilot

R = TypeVar("R")


def _each(function: Callable[..., R], rows: list[tuple[Any, ...]]) -> list[R]:
    """What one call does of a `map` in chunks."""
    return [function(*row) for row in rows]


class Executor(concurrent.futures.Executor):
    """An executor of the standard library whose calls run on a pilot's nodes. What a task says of its own calls goes first."""

    def __init__(self, pilot: Pilot, options: Options) -> None:
        step_of("executor", options)  # raises what is wrong with them now
        self._pilot = pilot
        self._options = options
        self._tasks: weakref.WeakKeyDictionary[Callable[..., Any], Task[..., Any]] = weakref.WeakKeyDictionary()
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._is_shut = False

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Hand in a call. Raises RuntimeError after `shutdown`, and what `Pilot.submit` raises."""
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        task = fn if isinstance(fn, Task) and not self._options else self._task_of(fn)
        future: Future[R] = self._pilot.hand_in(task, args, kwargs)
        self._futures.add(future)
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[R]:
        """Results, in order. With `chunksize` one call takes so many elements, which is quicker if each takes little time."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        function, own = (fn.function, fn.options) if isinstance(fn, Task) else (fn, {})
        several = Task(partial(_each, function), {"name": name_of(function), **own})
        rows = zip(*iterables, strict=False)
        chunks = iter(lambda: [*islice(rows, chunksize)], [])
        return chain.from_iterable(super().map(several, chunks, timeout=timeout, **more))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the pilot stays. `cancel_futures` ends those that have not begun."""
        from cantle.api.futures import wait as wait_for

        self._is_shut = True
        left = [future for future in self._futures if not future.done()]
        if cancel_futures:
            for future in left:
                if not future.running():
                    future.cancel()
        if wait:
            wait_for(left)

    def _task_of(self, function: Callable[..., R]) -> Task[..., R]:
        if not (isinstance(function, Task) or is_lasting(function)):
            return Task(function, self._options)
        task = self._tasks.get(function)
        if task is None:
            if isinstance(function, Task):
                task = Task(function.function, {**self._options, **function.options})
            else:
                task = Task(function, self._options)
            self._tasks[function] = task
        return task
