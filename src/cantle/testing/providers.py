"""Does a provider of nodes keep what its seam promises?

def test_my_provider_keeps_its_promises(tmp_path):
    check_provider(MyProvider, tmp_path)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from cantle.allocations.fleet.source import Invitation
from cantle.allocations.providers.base import Asked, Provider
from cantle.errors import CantleError
from cantle.model.resources import Node

T = TypeVar("T")
PATIENCE_S = 30.0


def check_provider(make: Callable[[], Provider], folder: Path, *, joins: bool = True) -> None:
    """Ask a provider for two nodes, take one back before it is there and the others after, and close it.

    `make` makes a fresh provider each time. No run is there to be joined, so that runners are started in vain; with `joins`
    False nothing is really asked for, and only what it says of itself is looked at.
    """
    provider = make()
    kind = provider.kind
    assert kind.name and kind.cores > 0, f"{kind.name!r} with {kind.cores} cores is no kind of node"
    assert isinstance(provider.invites, bool), "`invites` says whether runners join by themselves"
    assert all(isinstance(word, str) for pair in provider.undo.items() for word in pair), "`undo` is text to text"
    pause = _in_time(provider.tend, "tend")
    assert isinstance(pause, float | int) and pause >= 0, f"tend: {pause!r} is no number of seconds"
    if joins:
        _asked(provider, folder)
    _in_time(provider.close, "close")
    idle = make()
    _in_time(idle.close, "close, when nothing was asked for")


def _asked(provider: Provider, folder: Path) -> None:
    heard = _Heard()
    invitation = Invitation(str(folder / "letter"), b"no run\n", "false") if provider.invites else None
    asked = Asked(0, 2, f"check-{provider.kind.name}-0", str(folder), str(folder), invitation)
    try:
        _in_time(lambda: provider.add(asked, heard), "add")
    except CantleError as why:
        assert str(why), "add: a refusal needs a reason"
        return
    taken = _in_time(lambda: provider.withdraw(0, 1), "withdraw")
    assert isinstance(taken, int) and 0 <= taken <= 1, (
        f"withdraw: {taken!r} of one node that was asked to be taken back"
    )
    until = monotonic() + PATIENCE_S
    while not provider.invites and len(heard.nodes) + heard.will_not_come < 2 - taken and monotonic() < until:
        sleep(min(0.05, provider.tend()))
    assert heard.will_not_come <= 2 - taken, f"{heard.will_not_come} of 2 nodes refused, and {taken} taken back"
    if provider.invites:
        return
    assert len(heard.nodes) + heard.will_not_come == 2 - taken, "each node has to arrive or to be refused"
    names = [node.name for node in heard.nodes]
    assert len(set(names)) == len(names), f"two nodes of one name: {names}"
    for node in heard.nodes:
        assert node.kind == provider.kind.name, f"{node.name} is of kind {node.kind!r}, not {provider.kind.name!r}"
        if provider.kind.removes:
            _in_time(partial(provider.remove, node, node.name), "remove")


def _in_time(call: Callable[[], T], what: str) -> T:
    """What comes of it. Raises AssertionError when that takes too long, and whatever it raises."""
    found: list[T] = []
    raised: list[BaseException] = []

    def live() -> None:
        try:
            found.append(call())
        except BaseException as problem:  # noqa: BLE001 - raised again where it is heard
            raised.append(problem)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), f"{what} has not come back within {PATIENCE_S:g} s"
    if raised:
        raise raised[0]
    return found[0]


class _Heard:
    """The answers."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.will_not_come = 0

    def handed_out(self, request: int, instance: str) -> None:
        """Something was begun."""
        assert request == 0 and instance, f"handed_out: request {request}, instance {instance!r}"

    def waits(self, request: int, detail: str, expected_at: float = 0.0) -> None:
        """They are on their way."""
        assert request == 0 and isinstance(detail, str) and expected_at >= 0, "waits: which request, why, until when"

    def refused(self, request: int, n: int, why: str) -> None:
        """They will not come."""
        assert request == 0 and n > 0 and why, f"refused: {n} of request {request}: {why!r}"
        self.will_not_come += n

    def over(self, request: int, instance: str, n: int, why: str) -> None:
        """They have gone."""
        assert request == 0 and instance and n > 0 and why, f"over: {instance!r} with {n} nodes: {why!r}"
        self.will_not_come += n

    def arrived(self, request: int, nodes: Sequence[Node]) -> None:
        """They are there."""
        assert request == 0, f"arrived: request {request} was never made"
        self.nodes += nodes

    def joined(self, request: int) -> Mapping[str, Sequence[str]]:
        """Nobody has joined: there is no run."""
        assert request == 0, f"joined: request {request} was never made"
        return {}

    def note(self, text: str) -> None:
        """A sentence."""
        assert text, "note: it says nothing"
