"""Index lists, masks, and needs in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cantle.model.resources import (
    Needs,
    Node,
    count,
    indexes,
    list_to_mask,
    lowest_bits,
    mask_to_list,
)

index_sets = st.sets(st.integers(0, 300), max_size=60)


def mask_of(found: set[int]) -> int:
    return sum(1 << i for i in found)


@given(index_sets)
def test_a_mask_comes_back_from_its_list(found: set[int]) -> None:
    assert list_to_mask(mask_to_list(mask_of(found))) == mask_of(found)


@given(index_sets)
def test_a_list_is_written_as_the_kernel_does_with_no_run_cut_in_two(found: set[int]) -> None:
    named: list[int] = []
    runs = mask_to_list(mask_of(found)).split(",") if found else []
    for run in runs:
        first, _, last = run.partition("-")
        named += range(int(first), int(last or first) + 1)
        assert not last or int(last) > int(first)
        assert int(last or first) + 1 not in found and int(first) - 1 not in found
    assert named == sorted(found)
    assert indexes(mask_of(found)) == sorted(found)


@pytest.mark.parametrize(
    ("mask", "text"), [(0, ""), (1, "0"), (0b11, "0-1"), (0b10001111, "0-3,7"), (0b101, "0,2"), (1 << 299, "299")]
)
def test_lists_look_like_this(mask: int, text: str) -> None:
    assert mask_to_list(mask) == text
    assert list_to_mask(text) == mask


@pytest.mark.parametrize(
    "text", ["0-", "-1", "-", "a", "0,,1", ",", "3-2", "1-2-3", "1_0", " 1", "+1", "0x1", "²", "٣"]
)
def test_what_is_no_list_of_indexes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        list_to_mask(text)


@given(index_sets, st.integers(0, 60))
def test_the_lowest_bits_are_the_lowest(found: set[int], n: int) -> None:
    n = min(n, len(found))
    assert indexes(lowest_bits(mask_of(found), n)) == sorted(found)[:n]


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (Needs(), "1 core"),
        (Needs(cores=2), "2 cores"),
        (Needs(cores=1500), "1,500 cores"),
        (Needs(gpus=1), "1 core, 1 GPU"),
        (Needs(cores=4, gpus=2, memory_mib=512), "4 cores, 2 GPUs, 512 MiB of memory"),
        (Needs(named=(("licence", 2),)), "1 core, 2 licence"),
        (Needs(nodes=3), "1 core on each of 3 nodes"),
        (Needs(kind="big"), "1 core of kind big"),
        (
            Needs(cores=2, nodes=2, kind="big", whole_nodes=True),
            "2 cores, nothing else beside it on each of 2 nodes of kind big",
        ),
    ],
)
def test_needs_say_themselves(needs: Needs, text: str) -> None:
    assert str(needs) == text


def test_a_node_says_what_it_has() -> None:
    assert str(Node("n7", 8, 1, 1024, (("licence", 2),))) == "n7 (8 cores, 1 GPU, 1024 MiB of memory, 2 licence)"


def test_area_is_cores_over_all_nodes() -> None:
    assert Needs(cores=4, nodes=3).area == 12
    assert count(1, "node") == "1 node"
    assert count(0, "node") == "0 nodes"
