"""How is Dask's distributed set up, so that it carries our messages and does nothing else?

It opens connections, keeps them encrypted, notices their end, and tells of workers that come and go. Its own scheduling, its
dashboards, its log and its opinion about memory are switched off, whatever the user's own configuration of Dask says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cantle.allocations.fleet.certificates import Identity

if TYPE_CHECKING:
    from distributed.security import Security

HELLO = "cantle-hello"
WELCOME = "cantle-welcome"
REFUSED = "cantle-refused"
OVER = "cantle-over"
"""From the conductor: the node is used no more. From the runner: it has left, and why."""
BEAT = "cantle-beat"
"""A sign of life, both ways."""


def configure(silence_s: float) -> None:
    """Once in a process, before anything else of distributed is loaded."""
    import warnings

    # It wonders about machines that have no way out of their network. It need not: we look for addresses ourselves.
    warnings.filterwarnings("ignore", "Couldn't detect a suitable IP address", RuntimeWarning)
    import dask.config

    dask.config.set(
        {
            "logging": {"distributed": {"level": "critical", "handlers": [], "propagate": False}, "version": 1},
            "distributed.scheduler.work-stealing": False,
            "distributed.scheduler.allowed-failures": 1_000_000,
            "distributed.scheduler.worker-ttl": None,
            "distributed.scheduler.idle-timeout": None,
            "distributed.scheduler.http.routes": [],
            "distributed.scheduler.preload": [],
            "distributed.scheduler.contact-address": None,
            "distributed.scheduler.events-cleanup-delay": "1s",
            "distributed.scheduler.active-memory-manager.start": False,
            "distributed.worker.http.routes": [],
            "distributed.worker.preload": [],
            "distributed.worker.lifetime.duration": None,
            "distributed.worker.profile.enabled": False,
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,
            "distributed.worker.memory.terminate": False,
            "distributed.admin.low-level-log-length": 1,  # it would keep what it sent otherwise, all of it
            "distributed.admin.log-length": 1,
            "distributed.admin.event-loop-monitor-interval": "1h",
            "distributed.admin.tick.interval": "1h",
            "distributed.admin.tick.limit": "1000h",
            "distributed.admin.system-monitor.interval": "1h",
            "distributed.comm.compression": False,
            "distributed.comm.require-encryption": True,
            "distributed.comm.retry.count": 0,
            "distributed.comm.timeouts.connect": f"{silence_s:g}s",
            # Our own signs of life decide; a connection that the network has forgotten is closed some time after that.
            "distributed.comm.timeouts.tcp": f"{max(30.0, 2 * silence_s):g}s",
        }
    )
    import distributed.node

    setattr(distributed.node.ServerNode, "start_http_server", _no_http_server)  # noqa: B010 - it is somebody else's


def _no_http_server(_node: Any, *_words: Any, **_options: Any) -> None:
    """Nobody shall be able to ask a run about itself, or worse, without a certificate."""


def security_of(identity: Identity) -> Security:
    """The same identity in each of the roles that Dask knows."""
    from distributed.security import Security

    roles: dict[str, Any] = {}
    for role in ("client", "scheduler", "worker"):
        roles[f"tls_{role}_cert"] = identity.certificate
        roles[f"tls_{role}_key"] = identity.key
    make: Any = Security
    security: Security = make(require_encryption=True, tls_ca_file=identity.authority, **roles)
    return security


def hear_log(hear: Callable[[str], None], level: int = logging.WARNING) -> None:
    """Give what distributed logs to this function instead of the terminal. What is below it says the same again, to nobody."""
    below = logging.getLogger("tornado")
    below.handlers = [logging.NullHandler()]
    below.propagate = False
    logger = logging.getLogger("distributed")
    logger.handlers = [_Handler(hear)]
    logger.propagate = False
    logger.setLevel(level)
    for name, other in logging.Logger.manager.loggerDict.items():
        if name.startswith("distributed.") and isinstance(other, logging.Logger):
            other.setLevel(logging.NOTSET)


class _Handler(logging.Handler):
    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__()
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._hear(record.getMessage())
        except Exception:  # noqa: BLE001 - who logs shall not fail by it
            self.handleError(record)
