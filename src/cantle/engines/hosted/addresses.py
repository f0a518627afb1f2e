"""Under which of its own addresses do the others of a partition reach this machine? Asked by programs where they run."""

from __future__ import annotations

import ipaddress
import socket


def own_address(host: str) -> str:
    """An address of this machine, as a number, by the name under which others know it; the loopback where that is meant.

    Some systems give a machine's own name a loopback address, on which nobody else finds it: then the one counts by which
    it speaks to others.
    """
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        found = []
    for address in found:
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            return address
    return _outward() or (found[0] if found else "127.0.0.1")


def _outward() -> str:
    """The address by which this machine would speak to any other; "" where it speaks to nobody. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])
