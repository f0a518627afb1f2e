"""On which of this machine's addresses may others find it? On all that it has, the ones that lead outside first.

Which of them a certain node can reach is not known here: nodes try them all (see `reaching`), unless the user names one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from cantle.errors import RequestError


def addresses_of(interfaces: Mapping[str, Sequence[str]]) -> list[str]:
    """The addresses of these interfaces (name -> addresses), those for this machine alone last."""
    found: list[tuple[int, int, str]] = []
    for order, address in enumerate(a for listed in interfaces.values() for a in listed):
        try:
            known = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            continue
        if known.is_link_local or known.is_unspecified or known.is_multicast:
            continue
        found.append((2 if known.is_loopback else known.version == 6, order, str(known)))
    return [address for _, _, address in sorted(found)]


def interfaces_here() -> dict[str, list[str]]:
    """This machine's interfaces with their addresses."""
    import socket

    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [entry.address for entry in entries if entry.family in families]
        for name, entries in psutil.net_if_addrs().items()
    }


def chosen(wanted: str, interfaces: Mapping[str, Sequence[str]]) -> tuple[str, list[str]]:
    """On which address to listen ("": on all), and which ones to tell. `wanted` names an interface or an address.

    Raises RequestError when there is no such one here.
    """
    if not wanted:
        return "", [address for address in addresses_of(interfaces) if ":" not in address] or ["127.0.0.1"]
    if wanted in interfaces:
        found = addresses_of({wanted: interfaces[wanted]})
        if not found:
            raise RequestError(f"--interface {wanted}: this interface has no address that others could use")
        return found[0], found[:1]
    try:
        address = str(ipaddress.ip_address(wanted))
    except ValueError:
        names = ", ".join(sorted(interfaces))
        raise RequestError(f"--interface {wanted}: there is no interface of this name; there are {names}") from None
    here = addresses_of(interfaces)
    if address not in here:
        raise RequestError(f"--interface {wanted}: this machine has not that address, but {', '.join(here)}")
    return address, [address]
