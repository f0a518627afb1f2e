"""Where to run: what -j, hosts.yml, -r and --environment come to together."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from cantle.allocations.hosts.host import Host
from cantle.cli.command import Parser
from cantle.cli.machine import limit_options, machine_options
from cantle.cli.places import environment_of, known_hosts, resolved
from cantle.errors import RequestError

HERE = os.uname().nodename


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def asked(*words: str) -> Namespace:
    parser = Parser(exit_on_error=False)
    limit_options(parser, remote=True)
    machine_options(parser)
    parser.add_argument("--remote", default="")
    parsed: Namespace = parser.parse_args(list(words))
    return parsed


def places(*words: str) -> tuple[list[Host], int | None]:
    return resolved(asked(*words))


def test_a_number_is_for_this_machine_and_hosts_stand_beside_it():
    hosts, here = places("-j", "4", "server1:4", "server2:2")
    assert here == 4
    assert hosts == [Host(name="server1", address="server1", cores=4), Host(name="server2", address="server2", cores=2)]


def test_hosts_alone_leave_this_machine_out():
    assert places("-j", "server1:4")[1] is None


def test_this_machine_may_be_named_by_its_own_name():
    assert places("-j", f"{HERE}:3") == ([], 3)
    assert places("-j", "localhost") == ([], 0)
    with pytest.raises(RequestError, match="is this machine, which was named before: 4 cores"):
        places("-j", "4", "localhost:2")


def test_what_the_file_beside_the_study_says_counts_and_the_word_overrules_its_cores(tmp_path):
    Path("hosts.yml").write_text("hosts: {fast: {address: me@far.example.org, cores: 16, kind: gpu}}")
    hosts, _ = places("-j", "fast")
    assert hosts == [Host(name="fast", address="me@far.example.org", cores=16, kind="gpu")]
    hosts, _ = places("-j", "you@fast:2")
    assert (hosts[0].address, hosts[0].cores) == ("you@far.example.org", 2)


def test_the_users_own_file_is_known_and_a_named_one_stands_alone(tmp_path):
    (tmp_path / "config" / "cantle").mkdir(parents=True)
    (tmp_path / "config" / "cantle" / "hosts.yml").write_text("hosts: {a: {cores: 1}, b: {cores: 2}}")
    Path("hosts.yml").write_text("hosts: {a: {cores: 3}}")
    Path("other.yml").write_text("hosts: {c: {cores: 4}}")
    assert {name: host.cores for name, host in known_hosts(asked()).items()} == {"a": 3, "b": 2}
    assert list(known_hosts(asked("--hosts", "other.yml"))) == ["c"]


def test_the_file_is_looked_for_beside_the_study(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "hosts.yml").write_text("hosts: {d: {}}")
    options = asked()
    options.study_file = tmp_path / "deep" / "study.yaml"
    assert list(known_hosts(options)) == ["d"]


def test_an_alias_of_this_machine_with_set_up_is_started_without_ssh():
    Path("hosts.yml").write_text(
        "hosts: {me: {address: localhost, setup: [true]}, plain: {address: localhost, cores: 2}}"
    )
    assert places("-j", "me")[0] == [Host(name="me", address="", setup=("true",))]
    assert places("-j", "plain") == ([], 2)


def test_an_address_of_ipv6_loses_its_brackets_for_ssh():
    assert places("-j", "[fe80::1]:2")[0] == [Host(name="fe80::1", address="fe80::1", cores=2)]


def test_a_login_environment_is_that_of_each_host():
    assert places("-j", "server1", "--environment", "login")[0][0].environment == "login"
    Path("hosts.yml").write_text("hosts: {a: {environment: clean}, b: {}}")
    hosts, _ = places("-j", "a", "b", "--environment", "login")
    assert [host.environment for host in hosts] == ["clean", "login"]


def test_r_is_a_number_of_restarts_or_a_host():
    assert (asked("-r", "3").rlimit, asked("-r", "3").remote) == (3, "")
    assert (asked("-r", "server1").rlimit, asked("-r", "server1").remote) == (None, "server1")
    both = asked("-r", "server1", "-r", "2")
    assert (both.rlimit, both.remote) == (2, "server1")


def test_environments_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("FOO", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bash_profile").write_text("export PROFILE=read\n")
    assert environment_of(None) is None
    assert environment_of("inherit") is None
    clean, login = environment_of("clean"), environment_of("login")
    assert clean is not None and login is not None
    assert "FOO" not in clean and "FOO" not in login
    assert "PROFILE" not in clean and login["PROFILE"] == "read"
    assert clean["PATH"] and login["PATH"]
