"""A pool of hosts, without ssh: which host is taken next, which is left alone for a while, and which is free again."""

from __future__ import annotations

from pathlib import Path

import pytest
from providers_rig import Heard, asked, tended

from cantle.allocations.fleet.source import Invitation, Report
from cantle.allocations.hosts.host import Host
from cantle.allocations.providers import hosts
from cantle.allocations.providers.hosts import HostPool
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.resources import Node
from cantle.testing import check_provider

LAB = Kind("lab", 2)


class Session:
    """What would start a runner on one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.ended = False
        self.closed = False
        self.report: Report
        self.invitation: Invitation

    def start(self, invitation: Invitation, report: Report) -> None:
        self.invitation, self.report = invitation, report

    def close(self) -> None:
        self.closed = True


class Pool:
    """A pool of these hosts, and the sessions that it has begun."""

    def __init__(self, *names: str, kind: Kind = LAB) -> None:
        self.sessions: list[Session] = []
        self.provider = HostPool(kind, [Host(name=name, address=name) for name in names], self._make)

    def _make(self, host: Host) -> Session:
        self.sessions.append(Session(host))
        return self.sessions[-1]

    @property
    def taken(self) -> list[str]:
        return [session.host.name for session in self.sessions if not session.closed]


def test_there_can_be_no_more_nodes_than_hosts(tmp_path: Path) -> None:
    pool, heard = Pool("a", "b", kind=Kind("lab", 2, most=9)), Heard()
    assert pool.provider.kind.most == 2 and pool.provider.kind.removes
    pool.provider.add(asked(tmp_path, 3), heard)
    assert pool.taken == ["a", "b"] == heard.instances
    assert heard.refusals == [(1, "all 2 hosts of the pool are in use")]
    words = pool.sessions[1].invitation.command(*pool.sessions[1].host.options())
    assert words[words.index("--request") + 1] == "0:b" and words[words.index("--kind") + 1] == "lab"


def test_a_host_that_could_not_be_had_is_not_taken_for_one_in_use_by_who_asks_at_once(tmp_path: Path) -> None:
    pool, heard = Pool("a", "b"), Heard()
    pool.provider.add(asked(tmp_path, 2), heard)
    pool.sessions[1].report.failed(1, "b: connection refused")
    pool.provider.add(asked(tmp_path, 1, 1), heard)
    assert pool.taken == ["a", "b"] and len(pool.sessions) == 3
    assert heard.refusals == [(1, "b: connection refused")]


def test_a_host_that_could_not_be_had_is_the_last_to_be_tried_again(tmp_path: Path) -> None:
    pool, heard = Pool("a", "b", "c"), Heard()
    pool.provider.add(asked(tmp_path, 1), heard)
    pool.sessions[0].report.failed(1, "a: connection refused")
    assert heard.refusals == [(1, "a: connection refused")]
    tended(pool.provider, lambda: pool.taken == [])
    pool.provider.add(asked(tmp_path, 2, 1), heard)
    assert pool.taken == ["b", "c"]
    pool.provider.add(asked(tmp_path, 1, 2), heard)
    assert pool.taken == ["b", "c", "a"]


def test_a_host_that_is_given_back_or_whose_runner_is_gone_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_LOOK_S", 0.01)
    pool, heard = Pool("a", "b"), Heard()
    pool.provider.add(asked(tmp_path, 2), heard)
    pool.provider.remove(Node("a", 2), "a")
    pool.sessions[1].ended = True
    tended(pool.provider, lambda: pool.taken == [])
    with pytest.raises(MachineError, match="x is no host of the pool"):
        pool.provider.remove(Node("x", 2), "x")
    pool.provider.add(asked(tmp_path, 2, 1), heard)
    assert pool.taken == ["a", "b"] and not heard.refusals


def test_hosts_whose_runners_have_joined_are_not_withdrawn(tmp_path: Path) -> None:
    pool, heard = Pool("a", "b", "c"), Heard()
    pool.provider.add(asked(tmp_path, 3), heard)
    heard.there = {"c": ["c"]}
    assert pool.provider.withdraw(0, 1) == 1 and pool.taken == ["a", "c"]
    assert pool.provider.withdraw(0, 5) == 1 and pool.taken == ["c"]
    pool.provider.close()
    assert pool.taken == []


def test_a_pool_keeps_the_promises_of_a_provider(tmp_path: Path) -> None:
    check_provider(lambda: Pool("a", "b").provider, tmp_path)
