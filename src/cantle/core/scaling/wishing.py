"""Can somebody have so many nodes of a kind? For whoever asks, and wants to know at once why not."""

from __future__ import annotations

from cantle.core.state import State


def why_not(state: State, kind: str, count: int | None) -> str:
    """Why there cannot be so many nodes of this kind, a sentence; "" when there can. `count` None: as the policy has it."""
    ledger = state.scaling
    kinds = ledger.kinds if ledger is not None else {}
    if ledger is None or kind not in kinds:
        known = f"there are {', '.join(kinds)}" if kinds else "no kinds of node are declared (--kinds, kinds=)"
        return f"no kind of node is called {kind!r}; {known}"
    if count is None:
        return ""
    there = ledger.there(kind) + ledger.coming(kind)
    most = kinds[kind].bound
    if count > most:
        return f"there may be {most:,} nodes of kind {kind} at most, and {there:,} are there or on their way"
    if not kinds[kind].adds and count > there:
        return f"nobody who brings nodes can add any of kind {kind}, and {there:,} are there or on their way"
    return ""
