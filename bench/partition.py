"""How long until a partition can be used? On warm logical nodes, while the run goes on.

A run holds eight logical nodes; two tasks of it wait for the end of the bench. Again and again a partition of two nodes is
asked for, as `cantle partition create` does it, resized to six nodes and back, and drained. Measured from just before the
request is left to the moment at which tasks may run: the agent stands, or the further nodes are its own (by the journal).
Keys: create_ms, resize_ms (medians).
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from measure import CANTLE, arguments, conclude, scratch, table

from cantle.model.records import (
    AnyRecord,
    GrowPartition,
    PartitionAsked,
    PartitionDrainAsked,
    PartitionEnded,
    PartitionResizeAsked,
    PartitionStarted,
    ShrinkPartition,
)
from cantle.model.study import PartitionWish
from cantle.store.journal import follow
from cantle.store.layout import Layout
from cantle.store.requests import ask

STUDY = """
description: {name: held, description: two tasks that wait}
study:
- name: wait
  description: until the bench is over
  run: {cmd: "until [ -e ROOM/over ]; do sleep 0.2; done # $(N)"}
global.parameters:
  N: {values: [1, 2], label: N.%%}
"""
PATIENCE_S = 10.0


def median(found: list[float]) -> float:
    return sorted(found)[len(found) // 2]


def main() -> None:
    asked = arguments(__doc__)
    rounds = asked.rounds or (20 if asked.quick else 100)
    creates: list[float] = []
    grows: list[float] = []
    shrinks: list[float] = []
    with scratch() as room:
        (Path(room) / "study.yaml").write_text(STUDY.replace("ROOM", str(room)))
        out = Path(room) / "out"
        run = subprocess.Popen([*CANTLE, "run", f"{room}/study.yaml", "-o", str(out), "--nodes", "8x1", "-q"])
        try:
            while not Layout(out).exists():
                time.sleep(0.05)
            time.sleep(1.0)  # the first moments of a run are for its start
            journal = follow(Layout(out).journal)
            list(journal.poll())

            def until(is_it: Callable[[AnyRecord], bool]) -> float:
                stop = time.monotonic() + PATIENCE_S
                while time.monotonic() < stop:
                    for record in journal.poll():
                        if is_it(record):
                            return record.time
                    time.sleep(0.002)
                sys.exit("the run did not answer")

            for number in range(rounds):
                name = f"p{number}"
                begun = time.time()
                ask(out, PartitionAsked(0.0, PartitionWish(name, 2)))
                creates.append(until(lambda record: isinstance(record, PartitionStarted)) - begun)
                begun = time.time()
                ask(out, PartitionResizeAsked(0.0, name, 6))
                grows.append(until(lambda record: isinstance(record, GrowPartition)) - begun)
                begun = time.time()
                ask(out, PartitionResizeAsked(0.0, name, 2))
                shrinks.append(until(lambda record: isinstance(record, ShrinkPartition)) - begun)
                ask(out, PartitionDrainAsked(0.0, name))
                until(lambda record: isinstance(record, PartitionEnded))
        finally:
            (Path(room) / "over").touch()
            run.wait(30)
    rows: list[list[object]] = []
    for what, found in (("create", creates), ("resize 2 to 6", grows), ("resize 6 to 2", shrinks)):
        rows.append([what, 1000 * median(found), 1000 * min(found), 1000 * max(found)])
    table(["", "median ms", "best", "worst"], rows)
    conclude(create_ms=1000 * median(creates), resize_ms=1000 * max(median(grows), median(shrinks)))


if __name__ == "__main__":
    main()
