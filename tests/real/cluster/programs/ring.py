"""Each rank says where it is, and what the ranks of all sum up to: only one world of all of them can know that."""

import os
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
line = f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}, sum {total}\n"
os.write(1, line.encode())  # whole: lines of several ranks meet in one file
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
