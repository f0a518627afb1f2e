"""What does a study that comes to a pilot later have to know of what was before it?

Nodes, partitions and requests for nodes are numbered, and so each is told of. But what is over and was not its own needs few
words: of an element of a slice that there was one, of a request what became of it last.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from cantle.model.records import (
    AdmitPartition,
    AnyRecord,
    CancelAsked,
    EndRun,
    NodesAwaited,
    NodesWished,
    NoticeIdle,
    PartitionEnded,
    PartitionFailed,
    RefusePartition,
    RequestAnswered,
    RequestPartition,
    RunResumed,
    StopAsked,
)


class Prelude:
    """The records that concern all studies, told in order, as far as they still say something."""

    def __init__(self) -> None:
        self._records: dict[int, AnyRecord] = {}
        self._serial = 0
        self._about: dict[object, list[int]] = {}
        """Of what goes when there is something newer, or nothing more to say: where it stands."""
        self._asked = False
        """The last record asked for an element."""
        self._elements: dict[int, None] = {}
        """Elements that are not over, by the numbers of their partitions."""

    def __iter__(self) -> Iterator[AnyRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def remember(self, record: AnyRecord) -> None:
        """This happened, or was decided."""
        asked, self._asked = self._asked, isinstance(record, RequestPartition) and record.element is not None
        match record:
            case StopAsked() | CancelAsked() | EndRun() | NoticeIdle():
                return
            case AdmitPartition() if asked:
                self._elements[record.partition] = None
            case PartitionEnded() | PartitionFailed() if record.partition in self._elements:
                self._is_over(record.partition, record.time)
                return
            case RunResumed():
                for partition in list(self._elements):
                    self._is_over(partition, record.time)
                self._drop(NodesAwaited)
                record = replace(record, before=True)
            case NodesAwaited():
                self._drop(NodesAwaited)
            case RequestAnswered():
                self._drop((RequestAnswered, record.request))
            case NodesWished() if not record.problem:
                self._drop((NodesWished, record.kind))
        self._add(record)

    def _is_over(self, partition: int, time: float) -> None:
        """Of an element: nothing of it is left but its number."""
        del self._elements[partition]
        self._drop((RequestPartition, partition))
        self._add(RefusePartition(time, partition, "it was over before this study came"))

    def _add(self, record: AnyRecord) -> None:
        self._records[self._serial] = record
        if (about := self._subject(record)) is not None:
            self._about.setdefault(about, []).append(self._serial)
        self._serial += 1

    def _subject(self, record: AnyRecord) -> object:
        match record:
            case NodesAwaited():
                return NodesAwaited
            case RequestAnswered():
                return RequestAnswered, record.request
            case NodesWished() if not record.problem:
                return NodesWished, record.kind
        partition = getattr(record, "partition", None)
        return (RequestPartition, partition) if partition in self._elements else None

    def _drop(self, about: object) -> None:
        for serial in self._about.pop(about, ()):
            del self._records[serial]
