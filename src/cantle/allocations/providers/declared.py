"""What is said about a kind of node, and about who brings nodes of it? Values; readers, options and Python fill them alike."""

from __future__ import annotations

from typing import Literal

import msgspec

from cantle.model.kinds import Kind

from .batch import JobOptions

By = Literal["local", "batch", "hosts", "own", "plugin", "nobody"]
"""Who brings nodes.

local   this machine: logical nodes
batch   a batch system: jobs
hosts   hosts of a pool: runners by ssh
own     functions or commands of the user's
plugin  a provider of somebody else's: `system` names it
nobody  the kind is known, for planning and for what is there; nodes of it neither come nor go
"""


class Declared(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kind, and who brings nodes of it, with what he needs. Times are seconds.

    `system` names the batch system ("": the one that is here), `job` is how its jobs are asked for. `hosts` are words as after
    `-j`. `add` and `remove` are `module:function` or command lines; without `remove` nodes stay. `after_s` is how long a
    local node takes to come. `patience_s` and `joins_s` are those of `custom.py`, 0 for what is usual.
    """

    kind: Kind
    by: By = "nobody"
    system: str = ""
    job: JobOptions = JobOptions()
    hosts: tuple[str, ...] = ()
    add: str = ""
    remove: str = ""
    after_s: float = 0.0
    patience_s: float = 0.0
    joins_s: float = 0.0
