"""What does a task turn into? The seam that every engine fills.

An engine is told about nodes and decisions, and answers with events in the inbox: `TaskStarted`, `TaskEnded`, and
`NodeLost` when a node's runner is gone. It never waits and never decides. Each launched attempt is answered by exactly one
`TaskEnded`, also when it could not be started (outcome "unstartable"), unless its node is reported lost.

`cantle.testing.check_engine` runs the conformance check on any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cantle.model.records import Launch, Stop
from cantle.model.resources import Node
from cantle.model.seams import Channel
from cantle.model.study import Command

if TYPE_CHECKING:
    from cantle.engines.calls import Calls, Transport
    from cantle.engines.hosted.base import Hosted, Papers, Station
    from cantle.model.streams import Streams


class Engine(Protocol):
    """Runs attempts on the nodes that it was given. Called from the loop's thread only.

    `keeps_lines`: an attempt that is launched `behind` another one is started when that one is over, without being told
    again; with `if_done` only if that one is done, otherwise it ends as "interrupted" without having begun. The end of the
    one before is told first. Where an engine does not do that, nobody is launched so.

    `runs_streams`: a command may be launched as several processes. Where an engine does not do that, tasks of steps with
    streams end as "unstartable".
    """

    keeps_lines: bool
    runs_streams: bool

    def add_node(self, index: int, node: Node, channel: Channel) -> None:
        """Work may be sent to this node from now on, through its runner's channel."""

    def remove_node(self, index: int) -> None:
        """Use this node no more: end what still runs there, close its channel."""

    def launch(
        self,
        launch: Launch,
        command: Command,
        walltime_s: float = 0.0,
        memory_mib: int = 0,
        streams: Streams | None = None,
    ) -> None:
        """Start the attempt on its places. It is ended when it passes its walltime or its memory (0: no bound).

        With `streams` the command runs so many times, spread over the places: then the attempt starts with the first of
        them, is done when all are, and ended when one fails. Otherwise it runs once, on the first place.
        """

    def stop(self, stop: Stop) -> None:
        """End the attempt (TERM, grace, KILL; `at_once`: KILL); its `TaskEnded` bears the stop's outcome."""

    def open_partition(self, partition: int, name: str, nodes: Sequence[int]) -> None:
        """Start the agent of a partition on these nodes. `PartitionStarted` follows, or `PartitionFailed`."""

    def resize_partition(self, partition: int, joining: Sequence[int], leaving: Sequence[int]) -> None:
        """The agent serves these nodes as well, and those no more. Attempts may be launched on the new ones at once."""

    def close_partition(self, partition: int) -> None:
        """End the agent of a partition, if it has one. `PartitionEnded` follows."""

    def flush(self) -> None:
        """Send what has been gathered since the last flush: once a turn of the loop, so that messages go in batches."""

    def written(self) -> None:
        """What the engine has put into the inbox so far is in the journal (perhaps not on disk): runners may forget it."""

    def close(self) -> None:
        """End everything on all nodes and wait, for a bounded time, until it has ended."""


@runtime_checkable
class HostingEngine(Engine, Protocol):
    """An engine in whose partitions others may live. Where it is none, partitions that want one fail."""

    def open_hosting_partition(
        self,
        partition: int,
        name: str,
        hosted: Hosted,
        stations: Sequence[Station],
        papers: Callable[[], Papers],
    ) -> None:
        """Start the agent of a partition on these nodes, and this engine in it.

        `PartitionStarted` follows when it serves, or `PartitionFailed` when nothing of it is left.
        """

    def grow_hosting(self, partition: int, stations: Sequence[Station]) -> None:
        """What it hosts shall be on these nodes as well, of which the partition has all that it wants."""

    def retire_workers(self, partition: int, nodes: Sequence[int]) -> None:
        """What it hosts shall leave these nodes. `WorkersRetired` follows for each."""


@runtime_checkable
class SharedEngine(Engine, Protocol):
    """An engine on which several studies can run beside each other, each in a directory and an environment of its own."""

    def open_base(self, number: int, directory: str, env: dict[bytes, bytes], hide_gpus: bool, first: int) -> None:
        """From now on commands whose `base` is this number start in that directory, with that environment.

        Their tasks are told their numbers counted from `first`. `hide_gpus`: those that asked for no GPU see none.
        """

    def close_base(self, number: int) -> None:
        """All attempts of that base are over, and no more will come."""


@runtime_checkable
class CallingEngine(Engine, Protocol):
    """An engine that calls Python functions. `calls` is made when it is first asked for."""

    @property
    def calls(self) -> Calls:
        """Where functions are named, and results are had."""


@runtime_checkable
class SpreadingEngine(Engine, Protocol):
    """An engine whose attempts may spread over nodes by a program that is not ours.

    `launch_lost_a_node` is called when such an attempt has lost one of its nodes.
    """

    launch_lost_a_node: Callable[[], None]


@runtime_checkable
class KeepingEngine(Engine, Protocol):
    """An engine whose attempts leave results or files on their nodes.

    `make_transport` is asked for who brings them elsewhere. `local_files`: by task, the paths of files that other machines do
    not see.
    """

    make_transport: Callable[[], Transport] | None
    local_files: dict[int, list[str]]

    @property
    def calls_so_far(self) -> Calls | None:
        """The calls of Python functions, None when there was none yet."""
