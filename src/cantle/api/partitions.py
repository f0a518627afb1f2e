"""What is a partition to the program that asked for it?"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from cantle.api.futures import Future, wait
from cantle.api.needs import require_count, require_text
from cantle.api.tasks import Task
from cantle.errors import MachineError, RequestError
from cantle.model.study import PartitionWish
from cantle.runtime.pilot.sitting_messages import AskPartition, ClosePartition, PartitionNews, ResizePartition

if TYPE_CHECKING:
    from cantle.api.pilot import Pilot
    from cantle.api.seat import Seat

R = TypeVar("R")
_OVER = ("done", "failed", "canceled")


class Partition:
    """Nodes set apart. Its `with` block begins when it is active; at the end its calls are waited for, then it is closed."""

    def __init__(self, pilot: Pilot, seat: Seat, wish: PartitionWish) -> None:
        self.name = wish.name
        self.width = wish.width
        """How many nodes were asked for last."""
        self.nodes: list[str] = []
        self.env: dict[str, str] = {}
        """What its tasks find in their environment of its engine."""
        self.standing = "new"
        self.why = ""
        self._pilot = pilot
        self._seat = seat
        self._wish = wish
        self._changed = threading.Condition()
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._clients: list[Any] = []
        self._is_closed = False

    def ask(self) -> None:
        """Let the pilot know."""
        self._seat.say(AskPartition(self._wish))
        self._seat.flush()

    def require_open(self) -> None:
        """Raises RequestError when it takes no more calls, and can be no other width."""
        if self._is_closed:
            raise RequestError(f"the partition {self.name} is closed: ask for another one")
        if self.standing in _OVER:
            reason = f": {self.why}" if self.why else ""
            raise RequestError(f"the partition {self.name} is over, {self.standing}{reason}; ask for another one")

    def hear(self, news: PartitionNews) -> None:
        """The pilot tells how it stands."""
        with self._changed:
            if not news.name and self.standing in _OVER:
                return
            self.standing, self.nodes, self.env, self.why = news.standing, news.nodes, news.env, news.why
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> Partition:
        """Until it is active. Raises MachineError when it came to an end, TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.standing == "active" or self.standing in _OVER, timeout):
                raise TimeoutError(f"the partition {self.name} is {self.standing} after {timeout:g} s")
            if self.standing != "active":
                reason = f": {self.why}" if self.why else ""
                raise MachineError(f"the partition {self.name} is not active, but {self.standing}{reason}")
        return self

    def submit(self, function: Callable[..., R] | Task[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Hand in a call that runs here. As `Pilot.submit`."""
        options = {**function.options} if isinstance(function, Task) else {}
        inner = function.function if isinstance(function, Task) else function
        task: Task[..., R] = Task(inner, {**options, "partition": self.name})  # type: ignore[typeddict-item]
        future = self._pilot.hand_in(task, args, kwargs)
        self._futures.add(future)
        return future

    def resize(self, width: int) -> None:
        """Have it on so many nodes. Its engine adds and retires workers. Returns at once; `nodes` follows.

        Raises RequestError when there can never be so many, or it is over; PilotGoneError.
        """
        require_count(f"partition {self.name}: width=", width, 1)
        self.require_open()
        self._seat.ask(ResizePartition(self.name, width))
        self.width = width

    def client(self) -> Any:
        """A `distributed.Client` of this partition alone, when its engine is dask. It is closed with the partition.

        Raises RequestError when it has no Dask, MachineError when it is not active any more.
        """
        self.wait()
        address = self.env.get("DASK_SCHEDULER_ADDRESS", "")
        if not address:
            raise RequestError(f'the partition {self.name} has no Dask: ask for it with pilot.partition(engine="dask")')
        from distributed import Client

        from cantle.engines.hosted.dask import security_of

        client = Client(address, security=security_of(self.env), set_as_default=False)  # type: ignore[no-untyped-call]
        self._clients.append(client)
        return client

    def close(self, now: bool = False) -> None:
        """Give its nodes back when its calls are over; with `now` at once: its calls are canceled."""
        self._is_closed = True
        if now:
            for future in list(self._futures):
                future.cancel()
        elif self._futures:
            wait(list(self._futures))
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self.standing not in _OVER and not self._seat.left.is_set():
            self._seat.say(ClosePartition(self.name, now))
            self._seat.flush()

    def __enter__(self) -> Partition:
        try:
            return self.wait()
        except BaseException:
            self.close(now=True)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(now=kind is not None)

    async def __aenter__(self) -> Partition:
        import asyncio

        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close, kind is not None)

    def __repr__(self) -> str:
        return f"<Partition {self.name}: {self.standing}, {self.width} wide>"


def wish_of(
    name: str,
    width: int,
    engine: str,
    cores: int,
    gpus: int,
    memory: int | str,
    kind: str,
    layout: str,
    near: Sequence[str],
) -> PartitionWish:
    """What is asked for. Raises RequestError with what is wrong."""
    require_text("partition: name=", name)
    for key, text in (("engine", engine), ("kind", kind)):
        require_text(f"partition {name}: {key}=", text)
    if isinstance(near, str) or not isinstance(near, Sequence):
        raise RequestError(f"partition {name}: near={near!r} is no list of names")
    for each in near:
        require_text(f"partition {name}: in near, ", each)
    for key, least, value in (("width", 1, width), ("cores", 0, cores), ("gpus", 0, gpus)):
        require_count(f"partition {name}: {key}=", value, least)
    if layout not in ("any", "contiguous", "spread"):
        raise RequestError(f"partition {name}: layout={layout!r} is none of any, contiguous, spread")
    if isinstance(memory, str):
        from cantle.readers.quantities import memory_mib

        try:
            memory = int(memory_mib(memory))
        except ValueError as problem:
            raise RequestError(f"partition {name}: memory={memory!r}: {problem}") from None
    require_count(f"partition {name}: memory=", memory, 0)
    return PartitionWish(
        name,
        width,
        cores,
        gpus,
        memory,
        kind,
        layout,  # type: ignore[arg-type]
        tuple(near),
        engine=engine,
    )
