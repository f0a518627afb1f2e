"""How does the core try what cannot be foreseen, and get the same answer each time? With numbers that only look random."""

from __future__ import annotations


class Chance:
    """A repeatable sequence (a linear congruence modulo 2**64, its upper bits). The same seed makes the same one."""

    __slots__ = ("_state",)

    def __init__(self, seed: int = 1) -> None:
        self._state = seed

    def below(self, n: int) -> int:
        """Any of 0 .. n - 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self._state >> 33) * n >> 31

    def normal(self) -> float:
        """Nearly normal, with mean 0 and deviation 1: the sum of twelve even ones."""
        return sum(self.below(1 << 20) for _ in range(12)) / (1 << 20) - 6.0
