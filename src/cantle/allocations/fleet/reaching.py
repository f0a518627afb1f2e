"""By which of its addresses can the conductor be reached from here?

All are tried side by side, since one that leads nowhere may take its time to say so; the first that answers with a certificate
of the run's authority is the one. 127.0.0.1 leads somewhere from every machine, but only to the conductor on its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence

import msgspec

from cantle.allocations.fleet.certificates import Identity
from cantle.allocations.fleet.trust import context_of


class Reached(msgspec.Struct, frozen=True):
    """`address` is "" when none led there; `tried` says of each, in order, what came of it."""

    address: str
    tried: tuple[str, ...]


async def reach(addresses: Sequence[str], identity: Identity, patience_s: float) -> Reached:
    """Try all of them, for so long at most."""
    context = context_of(identity)
    tried = ["no answer" for _ in addresses]

    async def attempt(number: int, address: str) -> int:
        host, _, port = address.removeprefix("tls://").rpartition(":")
        try:
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
        except (OSError, ValueError) as error:
            tried[number] = _in_words(error)
            return -1
        writer.transport.abort()
        return number

    attempts = [asyncio.create_task(attempt(n, address)) for n, address in enumerate(addresses)]
    found = -1
    try:
        for done in asyncio.as_completed(attempts, timeout=patience_s):
            found = await done
            if found >= 0:
                break
    except TimeoutError:
        pass
    finally:
        for task in attempts:
            task.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
    lines = tuple(f"{address}: {said}" for address, said in zip(addresses, tried, strict=True))
    return Reached(addresses[found] if found >= 0 else "", lines)


def _in_words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "somebody else answers there, or the conductor of another run (its certificate is not of this run)"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
