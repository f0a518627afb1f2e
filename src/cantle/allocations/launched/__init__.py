"""Nodes from a launcher: `mpirun cantle run ...` starts the same command everywhere, and one copy conducts the others.

`copies.py`: which copy am I? `meetings.py` and `pmi.py`: how do the others find the first? `beside.py`: who else is on this
machine? `source.py`: the conductor's side.
"""
