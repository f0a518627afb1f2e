"""How fast are independent tasks started and reaped? 5,000 x /bin/true, two at a time, journal on.

Against a bare Python loop of posix_spawn and waitid with two in flight, whole process against whole process.
Key: rate_vs_spawn_loop (1 = as fast as the bare loop).
"""

import sys
from pathlib import Path

from measure import CANTLE, alternate, arguments, conclude, median_ratio, scratch, seconds, table

MAP = ["map", "/bin/true", "--env", "VALUE={}", "--cores", "2", "-q"]
LOOP = str(Path(__file__).parent / "spawn_loop.py")


def main() -> None:
    asked = arguments(__doc__)
    tasks = 5000
    rounds = asked.rounds or (3 if asked.quick else 7)
    with scratch() as room:
        number = iter(range(10**6))
        taken = alternate(
            rounds,
            loop=lambda: seconds([sys.executable, LOOP, str(tasks), "2", "/bin/true"]),
            cantle=lambda: seconds([*CANTLE, *MAP, "--range", f"1-{tasks}", "-o", f"{room}/{next(number)}"]),
        )
    ratio = median_ratio(taken["loop"], taken["cantle"])
    table(
        ["", "tasks/s, median", "best", "ms/task"],
        [
            [name, tasks / sorted(times)[len(times) // 2], tasks / min(times), 1000 * min(times) / tasks]
            for name, times in taken.items()
        ],
    )
    print(f"\ncantle's rate is {ratio:.2f} of the bare loop's (median of {rounds} pairs)")
    conclude(rate_vs_spawn_loop=ratio)


if __name__ == "__main__":
    main()
