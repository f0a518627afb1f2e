"""Sum a number over all streams of a step, so that each of them knows the total.

Needs no launcher: rank, size and meeting place stand in the variables that torchrun sets, and that Cantle sets for a step with
`communicates: true`. Rank 0 listens, hears all others, and answers each with the sum.
"""

import os
import socket
import sys
import time


def connect(address: tuple[str, int], patience_s: float = 20.0) -> socket.socket:
    """A connection to rank 0, which may not listen yet."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection(address, timeout=patience_s)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def all_reduce(number: float) -> float:
    """The sum of what all streams gave."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        with connect(meeting) as rank_0, rank_0.makefile("rw") as line:
            line.write(f"{number!r}\n")
            line.flush()
            return float(line.readline())
    with socket.create_server(("", meeting[1]), backlog=size) as server:
        server.settimeout(20)
        others = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
        total = number + sum(float(other.readline()) for other in others)
        for other in others:
            other.write(f"{total!r}\n")
            other.close()
        return total


if __name__ == "__main__":
    with open(sys.argv[1], encoding="ascii") as file:
        mine = sum(map(float, file))
    print(f"stream {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: the total is {all_reduce(mine):g}")
