"""How is a task told which GPUs are its own? Through the vendors' variables."""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH112

from __future__ import annotations

import os

_NAMES = (b"CUDA_VISIBLE_DEVICES", b"HIP_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"ZE_AFFINITY_MASK")
_NOTHING = (b"", b"-1", b"", b"")


def hidden() -> dict[bytes, bytes]:
    """Variables under which no GPU can be seen."""
    return dict(zip(_NAMES, _NOTHING, strict=True))


def visible(names: tuple[str, ...], amd: bool) -> dict[bytes, bytes]:
    """Variables under which exactly these GPUs can be seen.

    On AMD the ROCr variable filters first and the HIP and CUDA ones count what it left, so these count from 0 there.
    """
    chosen = ",".join(names).encode()
    if not amd:
        return dict.fromkeys(_NAMES, chosen)
    counted = ",".join(map(str, range(len(names)))).encode()
    return {_NAMES[0]: counted, _NAMES[1]: counted, _NAMES[2]: chosen, _NAMES[3]: chosen}


def machine_is_amd() -> bool:
    """Whether this machine's GPUs are AMD's: its driver is there and Nvidia's is not."""
    return os.path.isdir("/sys/class/kfd/kfd/topology/nodes") and not os.path.isdir("/proc/driver/nvidia")
