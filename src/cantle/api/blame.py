"""By whose error was a call not begun, when one that it needs failed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cantle.errors import DependencyError

if TYPE_CHECKING:
    from cantle.api.futures import Future


def not_begun(future: Future[Any], why: str) -> DependencyError:
    """The error of a call that was skipped. Its cause is that of the call which failed first, over whatever lies in between."""
    error = DependencyError(why)
    failed = _first_failed(future, why)
    if failed is not None:
        error.__cause__ = failed.exception()
    return error


def _first_failed(future: Future[Any], why: str) -> Future[Any] | None:
    """The one whose name the pilot told; if none of that name is known here, any that failed by itself."""
    met = {future}
    stack: list[Future[Any]] = [*reversed(future.needs)]
    found: Future[Any] | None = None
    while stack:
        need = stack.pop()
        if need in met or need.condition in ("done", "waits", "runs", "canceled"):
            continue
        met.add(need)
        if need.condition == "skipped":
            stack.extend(reversed(need.needs))
        elif f": {need.name} did" in why:
            return need
        else:
            found = found or need
    return found
