"""The yardstick of the process benches: a bare Python loop that spawns and reaps, so many in flight.

spawn_loop.py TASKS IN_FLIGHT COMMAND [ARG …]
"""

import os
import sys
import time


def spawn_loop(tasks: int, in_flight: int, argv: list[str]) -> None:
    """posix_spawn, waitid, nothing else."""
    environment = dict(os.environ)
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    running = 0
    left = tasks
    while left or running:
        while left and running < in_flight:
            os.posix_spawn(argv[0], argv, environment, file_actions=actions)
            running += 1
            left -= 1
        os.waitid(os.P_ALL, 0, os.WEXITED)
        running -= 1


if __name__ == "__main__":
    start = time.perf_counter()
    spawn_loop(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    print(time.perf_counter() - start)
