"""How does Dask live in a partition? A scheduler and one worker process on each node, for this partition's tasks alone.

They listen on the partition's own addresses, or on the loopback where all nodes are one machine, and always over TLS with
papers that nobody else has: whoever may speak to a Dask cluster may run anything as its owner, and other users' processes
reach a loopback too. `Client()` in a task needs no arguments: Dask's own variables tell it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantle.engines.hosted.base import Meeting, Program, Site, Station
from cantle.runner.messages import PYTHON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed.security import Security

READY = "cantle: the dask process serves"
_PROGRAM = (PYTHON, "-m", "cantle.engines.hosted.dask_program")
_PEM = {"authority": "authority.pem", "certificate": "certificate.pem", "key": "key.pem"}
_WITHIN_S = 90.0


class Dask:
    """Dask's distributed."""

    name = "dask"

    def head(self, site: Site) -> Program:
        """The scheduler. It chooses its port itself and says where it is."""
        words = ("head", site.host(site.head), _folder(site))
        return self._program(site, words)

    def worker(self, site: Site, station: Station, address: str) -> Program:
        """A worker with as many threads as the share has cores."""
        words = (
            "worker",
            site.host(station),
            _folder(site),
            address,
            station.name,
            str(station.n_cores),
            str(station.memory_mib),
        )
        return self._program(site, words)

    def retire(self, site: Site, station: Station, address: str) -> Program:
        """The scheduler moves what only this worker has to the others."""
        return Program((*_PROGRAM, "retire", site.host(site.head), _folder(site), address, station.name))

    def environment(self, site: Site, address: str) -> dict[str, str]:
        """By these `Client()` finds the scheduler and shows it the partition's papers."""
        folder = _folder(site)
        found = {
            "DASK_SCHEDULER_ADDRESS": address,
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": f"{folder}/{_PEM['authority']}",
        }
        for role in ("CLIENT", "SCHEDULER", "WORKER"):
            found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = f"{folder}/{_PEM['certificate']}"
            found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = f"{folder}/{_PEM['key']}"
        return found

    def of_process(self, meeting: Meeting) -> dict[str, str]:  # noqa: ARG002
        """Nothing more."""
        return {}

    def _program(self, site: Site, words: tuple[str, ...]) -> Program:
        papers = site.papers()
        private = {f"{site.directory}/{name}": getattr(papers, which) for which, name in _PEM.items()}
        return Program((*_PROGRAM, *words), private=private, says=READY, within_s=_WITHIN_S)


def security_in(folder: str) -> Security:
    """What shows the papers that lie there."""
    from distributed.security import Security

    roles = {}
    for role in ("client", "scheduler", "worker"):
        roles[f"tls_{role}_cert"] = f"{folder}/{_PEM['certificate']}"
        roles[f"tls_{role}_key"] = f"{folder}/{_PEM['key']}"
    security: Security = Security(  # type: ignore[no-untyped-call]
        require_encryption=True, tls_ca_file=f"{folder}/{_PEM['authority']}", **roles
    )
    return security


def security_of(env: Mapping[str, str]) -> Security:
    """For a client outside of the partition: what shows the papers of which these variables of its tasks speak."""
    return security_in(env["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"].rpartition("/")[0])


def _folder(site: Site) -> str:
    return f"{site.run}/{site.directory}"
