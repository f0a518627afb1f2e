"""What runs of Dask on the nodes of a partition: its scheduler, a worker, or what lets a worker go.

    python -m cantle.engines.hosted.dask_program head HOST FOLDER
    python -m cantle.engines.hosted.dask_program worker HOST FOLDER SCHEDULER NAME THREADS MEMORY_MIB
    python -m cantle.engines.hosted.dask_program retire HOST FOLDER SCHEDULER NAME

HOST is the node's name, FOLDER holds the papers. The last lines of stderr are what is told when it dies.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from cantle.engines.hosted.addresses import own_address
from cantle.engines.hosted.dask import READY, security_in

_CLOSING_S = 1.5


def main(role: str, host: str, folder: str, *more: str) -> None:
    """Be what is wanted, until TERM."""
    _configure(folder)
    security = security_in(folder)
    address = f"tls://{own_address(host)}"
    if role == "head":
        asyncio.run(_until_told(_head(address, security)))
    elif role == "worker":
        asyncio.run(_until_told(_worker(address, folder, security, *more)))
    else:
        asyncio.run(_retire(security, *more))


def _configure(folder: str) -> None:
    import dask.config

    dask.config.set(
        {
            "temporary-directory": f"{folder}/scratch",
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.scheduler.idle-timeout": None,
            # Whoever dies is told with what it said last, and that shall not be how it began.
            "logging": {"distributed": "warning"},
        }
    )
    import distributed.node

    def no_http_server(_node: Any, *_words: Any, **_options: Any) -> None:
        """No dashboard: it would answer anybody, without papers."""

    setattr(distributed.node.ServerNode, "start_http_server", no_http_server)  # noqa: B010 - it is somebody else's


async def _head(address: str, security: Any) -> Any:
    from distributed import Scheduler

    scheduler: Any = Scheduler(host=f"{address}:0", security=security, dashboard=False)
    await scheduler
    print(READY, scheduler.address, flush=True)
    return scheduler


async def _worker(
    address: str, folder: str, security: Any, scheduler: str, name: str, threads: str, memory_mib: str
) -> Any:
    from distributed import Worker

    worker: Any = Worker(
        scheduler,
        host=f"{address}:0",
        name=name,
        nthreads=int(threads),
        memory_limit=int(memory_mib) << 20 or "auto",
        local_directory=f"{folder}/scratch",
        security=security,
        dashboard=False,
        death_timeout=60,
    )
    await worker
    print(READY, worker.address, flush=True)
    return worker


async def _until_told(beginning: Coroutine[Any, Any, Any]) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    server = await beginning
    waits = asyncio.create_task(told.wait())
    gone = asyncio.create_task(server.finished())
    await asyncio.wait((waits, gone), return_when=asyncio.FIRST_COMPLETED)
    if told.is_set():
        try:
            await asyncio.wait_for(server.close(), _CLOSING_S)
        except TimeoutError:
            pass
    else:
        sys.exit(f"{type(server).__name__} at {server.address} has closed by itself: {_why(server)}")


def _why(server: Any) -> str:
    if type(server).__name__ == "Worker":
        return f"the scheduler at {server.scheduler.addr} is gone, or has let it go"
    return "somebody told it to"


async def _retire(security: Any, scheduler: str, name: str) -> None:
    from distributed import Client

    opening: Any = Client(scheduler, security=security, asynchronous=True, set_as_default=False)  # type: ignore[no-untyped-call]
    async with opening as client:
        workers = (await client.scheduler.identity())["workers"]
        names = [address for address, worker in workers.items() if str(worker["name"]) == name]
        if names:
            await client.retire_workers(workers=names, close_workers=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
