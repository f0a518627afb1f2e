"""What is a scaler, and what may it do?

A scaler is a policy: a function of a plan that yields decisions, as a packer does. It is asked in each pass, after the packer:
what is still ready then has found no room. It may yield

- `RequestNodes`: so many more of a kind that is declared
- `WithdrawRequest`: of a request's nodes that are on their way, so many are not needed any more
- `DrainNode` with cause `retires`: nothing more begins on the node; it shall be given back when it is empty
- `ResumeNode`: one that retires is wanted again
- `MoveResults`: what lives on a node alone and is needed shall live on another one as well
- `ReleaseNode`: give the node back; nothing runs on it
- `NoticeIdle`: tell whoever wants to know that the node is unused

It may put a time into `plan.memory[WAKES_AT]` at which it wants to be asked again although nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cantle.core.plan import Plan
from cantle.model.records import Decision

Scaler: TypeAlias = Callable[[Plan], Iterator[Decision]]

WAKES_AT = "scaling wakes at"
"""Under this key of a plan's memory stands when the scaler wants to be asked again, in the records' time."""
