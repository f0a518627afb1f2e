"""Cantle's own way to start ranks: the runners of the step's nodes start one each, as they do for streams.

For programs that need no launcher because they find each other by the variables that torchrun gives (`RANK`, `WORLD_SIZE`,
`MASTER_ADDR`). The whole script of the step runs once for each rank, so `$(LAUNCHER)` is nothing there.
"""

from __future__ import annotations

from cantle.engines.launchers.base import Layout, Prefix, Surroundings


class Own:
    """The runners."""

    name = "cantle"
    programs: tuple[str, ...] = ()

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:  # noqa: ARG002
        """No words: each rank has been started already."""
        return Prefix(())
