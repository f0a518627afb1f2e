"""How does a function become a task of which calls can be handed in?"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from cantle.api.futures import Future, Futures
from cantle.api.meaning import CACHED, Meaning
from cantle.api.needs import Options, estimate_of, step_of
from cantle.errors import one_line

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function with what its calls need. Called directly it is the function."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called: give the function, and not what it returned")
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        self.step = step_of(name_of(function), options)
        self.estimate_s = estimate_of(self.step.name, options)
        self.known: tuple[Any, str, int, Meaning] | None = None
        """At which seat it was used last, what it is called there (the function's digest and the step's number), and what the
        function meant then."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.function(*args, **kwargs)

    def submit(self, *args: Any, after: Iterable[Future[Any]] = (), **kwargs: Any) -> Future[R]:
        """Hand in a call to the pilot that is open. Returns at once.

        Futures among the arguments, in lists, tuples, dicts or objects as well, stand for their results; the call waits for
        them. It also waits until those of `after` are over, however they end. Raises RequestError when no pilot is open,
        and what pickling the arguments raises.
        """
        from cantle.api.pilot import current

        return current().hand_in(self, args, kwargs, after)

    def map(self, *iterables: Iterable[Any], after: Iterable[Future[Any]] = ()) -> Futures[R]:
        """One call for each element, or for each row of several iterables side by side."""
        from cantle.api.pilot import current

        pilot = current()
        before = tuple(after)
        return Futures(pilot.hand_in(self, row, {}, before) for row in zip(*iterables, strict=False))

    def with_options(self, **options: Unpack[Options]) -> Task[P, R]:
        """The same function with other needs; those that are not named stay."""
        return Task(self.function, {**self.options, **options})

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else Bound(self, instance)

    def __repr__(self) -> str:
        return f"<Task {self.step.name}: {self.step.needs}>"

    def __reduce__(self) -> Any:
        return _again, (self.function, dict(self.options))


class Bound(Generic[R]):
    """A task that is a method, of one object. The object goes along as the first argument."""

    def __init__(self, task: Task[..., R], instance: object) -> None:
        self._task = task
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the method, here and now."""
        return self._task.function(self._instance, *args, **kwargs)

    def submit(self, *args: Any, after: Iterable[Future[Any]] = (), **kwargs: Any) -> Future[R]:
        """As `Task.submit`."""
        return self._task.submit(self._instance, *args, after=after, **kwargs)

    def map(self, *iterables: Iterable[Any], after: Iterable[Future[Any]] = ()) -> Futures[R]:
        """As `Task.map`."""
        before = tuple(after)
        return Futures(self.submit(*row, after=before) for row in zip(*iterables, strict=False))

    def with_options(self, **options: Unpack[Options]) -> Bound[R]:
        """As `Task.with_options`."""
        return Bound(self._task.with_options(**options), self._instance)


def _again(function: Callable[..., Any], options: Options) -> Task[..., Any]:
    return Task(function, options)


def name_of(function: Callable[..., Any]) -> str:
    """What people see: the function's name, without where it was defined."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name: str = getattr(function, "__name__", "") or type(function).__name__
    return "lambda" if name == "<lambda>" else name if name.isprintable() else one_line(name) or "function"


def is_lasting(function: object) -> bool:
    """Whether it is the same function whenever it is met again, so that it need be pickled but once."""
    return isinstance(function, types.FunctionType | types.BuiltinFunctionType | type | CACHED)


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[Options]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(function: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """Make a task of a function: `@cantle.task`, or with what its calls need, `@cantle.task(cores=4, retries=1)`.

    The function is pickled when its first call is handed in, with what it refers to as that is then, and again when names that
    it refers to stand for something else. Options: see `Options`. Raises RequestError with the option that is wrong.
    """
    if function is None:
        step_of("task", options)  # raises what is wrong with them now
        return lambda each: Task(each, options)
    return Task(function, options)
