"""Where do the streams of a communicating step meet, and how are they told?

By the variables that torchrun gives its processes, so that a program written for it starts as it is. The first stream's
machine is the meeting place. The port is picked by the conductor when the attempt is launched: below the range from which
the system takes ports by itself, so that nobody gets it by chance before the program has it; not one of another attempt of
this run; and, where the meeting is on this machine, one that nobody listens on. Should somebody else take it all the same,
the program fails with the system's word for that, and the next attempt meets elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from cantle.model.streams import Share

_LOWEST = 10_000
_ENOUGH = 1000
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def variables(share: Share, streams: int, address: str, port: int) -> dict[str, str]:
    """What a stream is told of the others."""
    return {
        "RANK": str(share.stream),
        "WORLD_SIZE": str(streams),
        "LOCAL_RANK": str(share.local),
        "LOCAL_WORLD_SIZE": str(share.beside),
        "NODE_RANK": str(share.at),
        "GROUP_RANK": str(share.at),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def choose_port(taken: Collection[int], serial: int, here: bool) -> int:
    """A port for the next meeting that is none of `taken`. `serial` counts the meetings; `here`: on this machine.

    Raises OSError when there is none.
    """
    low = _LOWEST
    high = _first_of_the_system()
    if high - low < _ENOUGH:  # somebody gave nearly all of them to the system: then the rest of them must do
        low, high = 1024, 65536
    start = os.getpid() * 131 + serial  # conductors that begin at the same time search from different places
    for step in range(high - low):
        port = low + (start + step) % (high - low)
        if port not in taken and (not here or _is_free(port)):
            return port
    raise OSError(f"no port between {low} and {high} is free")


def _first_of_the_system() -> int:
    """The first of the ports that the system hands out."""
    try:
        with open(_RANGE, encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
