"""Cantle runs a whole workflow inside the machines that you already hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cantle.api.executor import Executor as Executor
    from cantle.api.futures import Future as Future
    from cantle.api.futures import as_completed as as_completed
    from cantle.api.futures import gather as gather
    from cantle.api.futures import wait as wait
    from cantle.api.partitions import Partition as Partition
    from cantle.api.pilot import Pilot as Pilot
    from cantle.api.pilot import current as current
    from cantle.api.pilot import open as open
    from cantle.api.tasks import Task as Task
    from cantle.api.tasks import task as task
    from cantle.errors import CantleError as CantleError
    from cantle.errors import DependencyError as DependencyError
    from cantle.errors import MachineError as MachineError
    from cantle.errors import PilotGoneError as PilotGoneError
    from cantle.errors import RemoteError as RemoteError
    from cantle.errors import RequestError as RequestError
    from cantle.errors import WalltimeError as WalltimeError

__version__ = "0.1.0"

_FROM = {
    "Executor": "api.executor",
    "Future": "api.futures",
    "as_completed": "api.futures",
    "gather": "api.futures",
    "wait": "api.futures",
    "Partition": "api.partitions",
    "Pilot": "api.pilot",
    "current": "api.pilot",
    "open": "api.pilot",
    "Task": "api.tasks",
    "task": "api.tasks",
    "CantleError": "errors",
    "DependencyError": "errors",
    "MachineError": "errors",
    "RemoteError": "errors",
    "RequestError": "errors",
    "WalltimeError": "errors",
    "PilotGoneError": "errors",
}
"""Names that are there when they are asked for: the command line needs none of them."""


def __getattr__(name: str) -> Any:
    home = _FROM.get(name)
    if home is None:
        raise AttributeError(f"module 'cantle' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"cantle.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_FROM, *(name for name in globals() if name.startswith("__"))})
