"""How long is a hop? A chain of 500 processes, each waiting for the one before.

Against the bare spawn loop with one in flight: the same processes, nothing decided and nothing written down. Both are
measured from the start of the first process to the end of the last, by the journal and by the loop itself.
Key: hop_vs_spawn_loop (1 = as long).
"""

import json
import subprocess
import sys
from pathlib import Path

from measure import CANTLE, alternate, arguments, conclude, median_ratio, scratch, seconds, table

from cantle.model.records import Launch, TaskEnded
from cantle.store.journal import read

LOOP = str(Path(__file__).parent / "spawn_loop.py")


def chain(path: Path, n: int) -> str:
    """A WfFormat instance: n tasks of zero seconds in a row, which run as /bin/true."""
    specified = [
        {
            "name": f"t{i}",
            "id": f"t{i}",
            "parents": [f"t{i - 1}"] if i else [],
            "children": [f"t{i + 1}"] if i + 1 < n else [],
        }
        for i in range(n)
    ]
    executed = [{"id": f"t{i}", "runtimeInSeconds": 0.0} for i in range(n)]
    path.write_text(
        json.dumps(
            {
                "name": "chain",
                "schemaVersion": "1.5",
                "workflow": {
                    "specification": {"tasks": specified, "files": []},
                    "execution": {"makespanInSeconds": 1.0, "tasks": executed, "machines": []},
                },
            }
        )
    )
    return str(path)


def main() -> None:
    asked = arguments(__doc__)
    hops = 500
    rounds = asked.rounds or (5 if asked.quick else 15)
    with scratch() as room:
        number = iter(range(10**6))
        file = chain(Path(room) / "chain.json", hops)

        def cantle() -> float:
            out = f"{room}/{next(number)}"
            seconds([*CANTLE, "run", file, "-q", "-o", out])
            times = [r.time for r in read(f"{out}/.cantle/journal.jsonl") if isinstance(r, Launch | TaskEnded)]
            assert len(times) == 2 * hops
            return (max(times) - min(times)) / hops * 1000

        def loop() -> float:
            command = [sys.executable, LOOP, str(hops), "1", "/bin/true"]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return float(told) / hops * 1000

        taken = alternate(rounds, cantle=cantle, loop=loop)
    table(["", "ms/hop, median", "best"], [[name, sorted(t)[len(t) // 2], min(t)] for name, t in taken.items()])
    conclude(hop_vs_spawn_loop=median_ratio(taken["cantle"], taken["loop"]))


if __name__ == "__main__":
    main()
