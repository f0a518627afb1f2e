"""What becomes of a kind of node whose provider refuses, and what did a run say of that? For people."""

from __future__ import annotations

from collections.abc import Sequence

from cantle.core.lifetimes import in_words
from cantle.core.scaling.bounds import retry_at
from cantle.core.scaling.ledger import MOST_REFUSALS, Ledger
from cantle.core.scaling.naming import seconds
from cantle.core.scaling.settings import Scaling
from cantle.errors import RequestError


def then(ledger: Ledger, kind: str, now: float) -> str:
    """What comes after the last refusal, a sentence without its end; "" when the kind was not refused, or has gone."""
    refusals = ledger.refusals.get(kind, 0)
    if not refusals or kind not in ledger.kinds:
        return ""
    if refusals >= MOST_REFUSALS:
        return f"{refusals} requests in a row brought none, so it is not asked for any more"
    left = retry_at(ledger, ledger.kinds[kind], settings_of(ledger.words)) - now
    return f"it is asked for again {f'in {in_words(left)}' if left > 0 else 'with the next look'}"


def settings_of(words: Sequence[str]) -> Scaling:
    """What the run goes by, of what was said after --scaling: its policies, and how long it waits after what."""
    cool_down_s, retry_s = Scaling().cool_down_s, Scaling().retry_s
    policies = []
    for word in words:
        key, equals, value = word.partition("=")
        try:
            if equals and key == "cool-down":
                cool_down_s = seconds(value, word)
            elif equals and key == "retry":
                retry_s = seconds(value, word)
            elif not equals or ":" in key:
                policies.append(word)
        except RequestError:  # how long that is, the reader of the command line knew
            continue
    return Scaling(policies=tuple(policies), cool_down_s=cool_down_s, retry_s=retry_s)
