"""How long does a one-task study take, from the shell's prompt to the next?

Against `maestro run -fg` on the same file (if maestrowf is installed beside), and against a bare Python program that
spawns the same script. Keys: vs_maestro, vs_bare (1 = as long).
"""

import os
import sys
from pathlib import Path

from measure import CANTLE, alternate, arguments, conclude, median_ratio, scratch, seconds, table

STUDY = """description:
    name: one
    description: one task
study:
    - name: only
      description: says hello
      run:
          cmd: echo hello
"""
BARE = "import subprocess, sys; subprocess.run(['/bin/bash', sys.argv[1]], check=True)"


def main() -> None:
    asked = arguments(__doc__)
    rounds = asked.rounds or (7 if asked.quick else 21)
    maestro = Path(sys.executable).with_name("maestro")
    with scratch() as room:
        study, script = Path(room) / "one.yaml", Path(room) / "only.sh"
        study.write_text(STUDY)
        script.write_text("#!/bin/bash\n\necho hello\n")
        number = iter(range(10**6))
        os.environ["PATH"] = f"{maestro.parent}:{os.environ['PATH']}"
        contestants = {
            "bare": lambda: seconds([sys.executable, "-c", BARE, str(script)]),
            "cantle": lambda: seconds([*CANTLE, "run", str(study), "-o", f"{room}/{next(number)}"]),
        }
        if maestro.exists():
            contestants["maestro"] = lambda: seconds(
                [str(maestro), "run", "-fg", "-y", "-s", "1", "-o", f"{room}/{next(number)}", str(study)]
            )
        taken = alternate(rounds, **contestants)
    table(["", "median s", "best s"], [[name, sorted(t)[len(t) // 2], min(t)] for name, t in taken.items()])
    figures = {"vs_bare": median_ratio(taken["cantle"], taken["bare"])}
    if "maestro" in taken:
        figures["vs_maestro"] = median_ratio(taken["cantle"], taken["maestro"])
    conclude(**figures)


if __name__ == "__main__":
    main()
