"""What starts ranks where nobody said it? The MPI that the node has on which the launch begins.

Which one that is can be asked there alone: so the words are those of a small script that asks, and then says to the one it
finds what is written for its kind.
"""

from __future__ import annotations

import shlex

from cantle.engines.launchers.base import Layout, Prefix, Surroundings
from cantle.engines.launchers.mpich import Mpich
from cantle.engines.launchers.openmpi import OpenMpi

_SCRIPT = """\
#!/bin/sh
# Starts a launch by the MPI that this node has. Written by Cantle, anew for each attempt.
for program in mpiexec mpirun; do
    said=$("$program" --version 2>&1 </dev/null) || continue
    case $said in
    *'Open MPI'* | *OpenRTE* | *PRRTE*) exec "$program" {openmpi} "$@" ;;
    *) exec "$program" {mpich} "$@" ;;
    esac
done
echo "cantle: $(uname -n) has no mpiexec and no mpirun, but {ranks} ranks are to be started from there:" \\
    "install Open MPI or MPICH, load its module in the set-up of the runner, or say --launcher" >&2
exit 127
"""


class Found:
    """Open MPI's or MPICH's, whichever the first node has."""

    name = "found"
    programs: tuple[str, ...] = ("mpiexec", "mpirun")

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:
        """A script that finds out, and the files for either."""
        theirs = {flavour.name: flavour.prefix(layout, around, stem) for flavour in (OpenMpi(), Mpich())}
        path = f"{stem}.mpi"
        files = {name: text for each in theirs.values() for name, text in each.files.items()}
        env = {name: value for each in theirs.values() for name, value in each.env.items()}
        words = {name: shlex.join(each.words[1:]) for name, each in theirs.items()}
        files[path] = _SCRIPT.format(**words, ranks=layout.ranks)
        return Prefix(("/bin/sh", path), files, env)
