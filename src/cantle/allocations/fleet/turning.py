"""How is an event loop turned to the end of one coroutine, and no longer? What Dask leaves running must not keep us."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

_REST_S = 0.5


def turn(coroutine: Coroutine[object, object, T], tidy: bool = True) -> T:
    """Run it in a loop of its own. Tasks that it leaves behind are cancelled, and forgotten when they do not heed that.

    Not `tidy`: they are left as they are, by a process that ends now. A Dask worker takes it for a breakdown when somebody
    cancels its closing, and ends the process at once, with a status of its own.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    if not tidy:
        return loop.run_until_complete(coroutine)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(_end_the_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


async def _end_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=_REST_S)
