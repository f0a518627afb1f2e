"""What the words after -j say, and what is told when they say nothing."""

from __future__ import annotations

import pytest

from cantle.allocations.hosts.here import is_here
from cantle.allocations.hosts.words import Named, places_of
from cantle.errors import RequestError


def hosts(*words: str) -> list[tuple[str, str, int]]:
    return [(host.user, host.name, host.cores) for host in places_of(words).hosts]


def test_a_number_stands_for_cores_of_this_machine():
    assert places_of(["4"]).here == 4
    assert places_of(["server1:4"]).here is None


def test_hosts_are_named_with_their_cores_or_without():
    places = places_of(["4", "server1:4", "server2"])
    assert places.here == 4
    assert [(host.name, host.cores) for host in places.hosts] == [("server1", 4), ("server2", 0)]
    assert places.hosts[0] == Named("server1", "", 4, "server1:4")


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("me@server1:2", [("me", "server1", 2)]),
        ("node[01-03]:4", [("", "node01", 4), ("", "node02", 4), ("", "node03", 4)]),
        ("node[1-2,4]", [("", "node1", 0), ("", "node2", 0), ("", "node4", 0)]),
        ("me@n[1-2]:3", [("me", "n1", 3), ("me", "n2", 3)]),
        ("a,b:4", [("", "a", 4), ("", "b", 4)]),
        ("a:2,b,c:4", [("", "a", 2), ("", "b", 4), ("", "c", 4)]),
        ("a:2,b", [("", "a", 2), ("", "b", 0)]),
        ("node[1-4]!node2", [("", "node1", 0), ("", "node3", 0), ("", "node4", 0)]),
        ("10.0.0.7:8", [("", "10.0.0.7", 8)]),
        ("[fe80::1%eth0]:8", [("", "[fe80::1%eth0]", 8)]),
        ("[::1]", [("", "[::1]", 0)]),
    ],
)
def test_hosts_are_named_in_many_ways(word, named):
    assert hosts(word) == named


def test_a_star_stands_for_every_node_of_a_launcher():
    assert places_of(["5", "*:5"]).everywhere == 5
    assert places_of(["*"]).everywhere == 0
    assert places_of(["5"]).everywhere is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("# ours\nnode1:4\nnode2 # the slow one\n\n", [("node1", 4), ("node2", 0)]),
        ("node1 slots=4 max_slots=8\nnode2 slots=2\n", [("node1", 4), ("node2", 2)]),
        ("node1 4 all.q@node1 UNDEFINED\n", [("node1", 4)]),
        ("node1\nnode1\nnode2\nnode1\n", [("node1", 3), ("node2", 1)]),
        ("node[1-2]:4\n", [("node1", 4), ("node2", 4)]),
    ],
)
def test_a_file_lists_hosts_as_mpi_pbs_and_sge_write_them(tmp_path, text, named):
    file = tmp_path / "hosts"
    file.write_text(text)
    assert [(name, cores) for _, name, cores in hosts(f"@{file}")] == named


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["0"], "-j 0: 0 cores are no place to work"),
        (["4", "2"], "-j 2: cores of this machine were named before: 4"),
        (["server1:four"], "-j server1:four: 'four' is not a number of cores; write 4 (here)"),
        (["server1:"], "'' is not a number of cores"),
        (["server1:0"], "0 cores are no place"),
        (["-oProxyCommand=x:4"], "cannot be the name of a host"),
        (["a b"], "'a b' cannot be the name of a host"),
        (["$x@server1"], "'$x' cannot be a user; write USER@HOST:CORES"),
        (["node[1-"], "its brackets do not match; write node[01-16]:4"),
        (["node[4-1]"], "no set of nodes"),
        (["node[1-20000]"], "20,000 hosts; at most 10,000"),
        (["node[1-99999999999]"], "99,999,999,999 hosts; at most 10,000"),
        (["node[1-99999999999999999999]"], "too many hosts; at most 10,000"),
        (["node[1-200]-[1-200]"], "40,000 hosts; at most 10,000"),
        (["9" * 5000], "is not a number of cores"),
        (["server1:" + "9" * 5000], "is not a number of cores"),
        (["@a\0b"], "cannot read a\0b"),
        (["fe80::1:4"], "an IPv6 address stands in brackets"),
        (["server1:4", "server1:2"], "server1 is named twice, here and in 'server1:4'"),
        (["*:2", "*:4"], "a * was named before"),
        (["study.yaml"], "it looks like a study; the study stands before -j"),
        (["dir/hosts"], "a file that lists hosts is @FILE"),
        (["@"], "no file is named"),
        (["@/nowhere/hosts"], "cannot read /nowhere/hosts: No such file"),
    ],
)
def test_a_word_that_names_no_place_is_told_with_what_would(words, told):
    with pytest.raises(RequestError) as wrong:
        places_of(words)
    assert told in str(wrong.value)
    assert "-j " in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no host in"),
        ("node1\nnode2:x\n", "hosts:2: 'x' is not a number of cores"),
        ("node1:4 slots=2\n", "hosts:1: 'node1:4 slots=2' says twice"),
        ("node1 slots=none\n", "hosts:1: 'none' is not a number"),
    ],
)
def test_a_wrong_line_of_a_host_file_is_told_with_its_number(tmp_path, text, told):
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(RequestError) as wrong:
        places_of([f"@{file}"])
    assert told in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("[::1]", True),
        ("lab7", True),
        ("LAB7", True),
        ("lab7.example.org", True),
        ("lab7.other.org", True),
        ("lab70", False),
        ("10.0.0.7", False),
    ],
)
def test_the_names_of_this_machine_are_known(name, here):
    assert is_here(name, "lab7") is here


def test_a_machine_of_the_same_name_in_another_domain_is_another():
    assert is_here("lab7.example.org", "lab7.example.org")
    assert is_here("lab7", "lab7.example.org")
    assert not is_here("lab7.other.org", "lab7.example.org")
    assert not is_here("10.1.2.3", "10.0.0.7")
