"""How does a rank come to its own cores and GPUs where the launcher cannot be told? By a small script before the program.

It takes the rank's number from the launcher's variables and finds its line. Where the node does not let it be bound, it runs
unbound: a program that runs anywhere is better than none.
"""

from __future__ import annotations

from cantle.engines.launchers.base import Layout

_HEAD = """\
#!/bin/sh
# Gives each rank of a launch its own cores and GPUs. Written by Cantle, anew for each attempt.
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-}}}}
cores= gpus=-
case $rank in
"""
_TAIL = """\
esac
if [ "$gpus" != - ]; then
    counted=$gpus
    if [ -d /sys/class/kfd/kfd/topology/nodes ] && ! [ -d /proc/driver/nvidia ]; then
        # On AMD the ROCr variable filters first, and the others count what it left.
        counted= n=0 IFS=,
        for each in $gpus; do counted=${counted:+$counted,}$n n=$((n + 1)); done
        unset IFS
    fi
    export CUDA_VISIBLE_DEVICES="$counted" HIP_VISIBLE_DEVICES="$counted"
    export ROCR_VISIBLE_DEVICES="$gpus" ZE_AFFINITY_MASK="$gpus"
fi
if [ -n "$cores" ] && taskset -c "$cores" true 2>/dev/null; then
    exec taskset -c "$cores" "$@"
fi
exec "$@"
"""


def is_needed(layout: Layout) -> bool:
    """Whether ranks would otherwise run where, or see what, is not theirs.

    On the host where the launch begins they inherit its cores; whatever is started elsewhere inherits nothing.
    """
    out = layout.reaches_out
    return (out and layout.bound) or bool(layout.gpus and (out or layout.gpus_each))


def script(layout: Layout) -> str:
    """The script for this layout. Launchers number ranks in the order of its hosts."""
    lines = []
    rank = 0
    for host in layout.hosts:
        for seat in host.seats:
            words = []
            if layout.bound and seat.cores:
                words.append(f"cores={','.join(map(str, seat.cores))}")
            if layout.gpus:
                words.append(f"gpus={','.join(seat.gpus)}")
            lines.append(f"{rank}) {' '.join(words) or ':'} ;;\n")
            rank += 1
    return _HEAD + "".join(lines) + _TAIL
