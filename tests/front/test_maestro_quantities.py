"""Durations, walltimes, amounts of memory, and the lines of a YAML file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantle.readers.findings import Findings
from cantle.readers.quantities import clock, duration_s, is_tidy_clock, memory_mib, walltime_s
from cantle.readers.yaml_nodes import parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90 s", 90),
        ("90s", 90),
        ("250 ms", 0.25),
        ("5 min", 300),
        ("2 hours", 7200),
        ("1 h 30 min", 5400),
        ("1h30m", 5400),
        ("1 day, 2 hours", 93600),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("0:00:01.5", 1.5),
    ],
)
def test_durations(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 weeks", "-5", "1:2:3:4", "five", "5 min x", "1e3"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r"is not"):
        duration_s(text)


@pytest.mark.parametrize("read", [duration_s, walltime_s, memory_mib])
@pytest.mark.parametrize("unit", ["", "d", "GB"])
def test_a_number_that_nobody_could_reckon_with_is_none(read, unit):
    with pytest.raises(ValueError, match=r"is not|is more than there is of anything"):
        read("9" * 400 + unit)
    with pytest.raises(ValueError, match=r"is not|is more than there is of anything"):
        read("9" * 20 + unit)


@pytest.mark.parametrize(
    ("text", "seconds", "as_lsf"),
    [
        ("30", 1800, 1800),
        ("00:30:00", 1800, 1800),
        ("30:00", 1800, 108000),
        ("1-12", 129600, 129600),
        ("1-12:30", 131400, 131400),
        ("2-00:00:01", 172801, 172801),
        ("00:60:00", 3600, 3600),
        ("90 s", 90, 90),
        ("UNLIMITED", 0, 0),
        ("inf", 0, 0),
    ],
)
def test_walltimes(text, seconds, as_lsf):
    assert walltime_s(text) == seconds
    assert walltime_s(text, hours_first=True) == as_lsf


@settings(max_examples=100, derandomize=True, database=None)
@given(st.integers(1, 10**7))
def test_a_clock_reads_back_as_what_it_was(seconds):
    assert walltime_s(clock(seconds)) == seconds
    assert is_tidy_clock(clock(seconds))


@pytest.mark.parametrize("text", ["00:60:00", "0:0:99", "1-25:00", "30", "90 s"])
def test_clocks_that_are_not_tidy(text):
    assert not is_tidy_clock(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512 MiB", 512),
        ("1GiB", 1024),
        ("1 GB", 954),
        ("1g", 954),
        ("1 TiB", 2**20),
        ("1 B", 1),
        ("0.5 GiB", 512),
    ],
)
def test_amounts_of_memory(text, mib):
    assert memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "much", "5 XB", "-1", "1 GiB 2 MiB"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(ValueError, match="is not an amount of memory"):
        memory_mib(text)


def plain(text):
    findings = Findings("f")
    item = parse(text, findings)
    assert not findings.problems
    return item.plain()


def test_values_are_those_of_yaml_but_clocks_stay_text():
    text = (
        "[000, 010, 08, 1_000, 0x1f, yes, ~, 1.50, 1e3, 10:00:00, 12:30, 190:20:30.15, 00:10:00, '5', 5, !!str 5, -0]"
    )
    expected = [0, 8, "08", 1000, 31, True, None, 1.5, "1e3", "10:00:00", "12:30", "190:20:30.15", "00:10:00"]
    assert plain(text) == [*expected, "5", 5, "5", 0]


def test_anchors_and_merges_work():
    assert plain("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: *x")["b"] == {"p": 1, "q": 3}


def test_every_value_and_key_knows_its_line():
    item = parse("a: 1\nb:\n  c:\n    - x\n    - y\n", Findings("f"))
    assert (item.lines, item.mapping["b"].mapping["c"].line) == ({"a": 1, "b": 2}, 4)
    assert [child.line for child in item.mapping["b"].mapping["c"].value] == [4, 5]


def test_a_bomb_of_aliases_is_refused_in_no_time():
    levels = ["l0: &l0 [x, x]"] + [f"l{i}: &l{i} [*l{i - 1}, *l{i - 1}]" for i in range(1, 60)]
    findings = Findings("f")
    assert parse("\n".join(levels), findings) is None
    assert "aliases of aliases" in findings.problems[0].what


def test_a_value_that_is_often_referred_to_is_no_bomb():
    text = "a: &x [1, 2, 3]\nb: [" + ", ".join(["*x"] * 1000) + "]"
    assert len(plain(text)["b"]) == 1000
