"""Are streams dealt out to nodes, cores and GPUs as promised?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cantle.model.resources import Place, list_to_mask
from cantle.model.streams import Share, Streams, crowding, output_stem, shares, streams_of
from cantle.model.study import Step


def places(*cores: str, gpus: str = "") -> tuple[Place, ...]:
    return tuple(Place(10 + number, each, gpus) for number, each in enumerate(cores))


def test_a_step_without_streams_has_none() -> None:
    assert streams_of(Step("s")) is None
    assert streams_of(Step("s", streams=4, communicates=True, cores_per_rank=2)) == Streams(4, 2, True)


def test_streams_go_to_places_in_blocks() -> None:
    found = shares(Streams(7), places("0-3", "0-3", "0-3"))
    assert [(share.stream, share.at, share.node) for share in found] == [
        (0, 0, 10),
        (1, 0, 10),
        (2, 0, 10),
        (3, 1, 11),
        (4, 1, 11),
        (5, 2, 12),
        (6, 2, 12),
    ]
    assert [(share.local, share.beside) for share in found] == [(0, 3), (1, 3), (2, 3), (0, 2), (1, 2), (0, 2), (1, 2)]


def test_the_same_streams_are_one_on_each_of_many_nodes_or_many_on_each_of_few() -> None:
    for width, each in ((400, 1), (100, 4), (50, 8), (20, 20), (10, 40)):
        found = shares(Streams(400), places(*["0-7"] * width))
        assert {share.beside for share in found} == {each}
        assert len(found) == 400


@given(streams=st.integers(1, 60), width=st.integers(1, 20), cores=st.integers(1, 9), each=st.integers(1, 5))
def test_every_stream_has_one_place_and_no_two_lanes_share_a_core(
    streams: int, width: int, cores: int, each: int
) -> None:
    found = shares(Streams(streams, each), places(*[f"0-{cores - 1}"] * width))
    assert [share.stream for share in found] == list(range(streams))
    assert [share.at for share in found] == [stream * width // streams for stream in range(streams)]
    beside = [sum(share.at == at for share in found) for at in range(width)]
    assert max(beside) - min(beside) <= 1
    for at in range(width):
        lanes = {share.lane: list_to_mask(share.cores) for share in found if share.at == at}
        if lanes:
            assert len(lanes) == min(beside[at], max(1, cores // each))
            assert sum(lanes.values()) == (1 << cores) - 1, "all cores are used, and none twice"
            sizes = [mask.bit_count() for mask in lanes.values()]
            assert max(sizes) - min(sizes) <= 1
            assert min(sizes) >= min(each, cores)


def test_streams_of_a_lane_follow_each_other_in_their_order() -> None:
    found = shares(Streams(5, cores_each=2), places("4-7"))
    assert [(share.stream, share.lane, share.cores) for share in found] == [
        (0, 0, "4-5"),
        (1, 1, "6-7"),
        (2, 0, "4-5"),
        (3, 1, "6-7"),
        (4, 0, "4-5"),
    ]


def test_a_place_without_cores_runs_all_of_its_streams_at_once() -> None:
    assert [(share.lane, share.cores) for share in shares(Streams(3), places(""))] == [(0, ""), (1, ""), (2, "")]


@pytest.mark.parametrize(
    ("streams", "gpus", "expected"),
    [(2, "0-3", ["0-1", "2-3"]), (4, "2-3", ["2", "2", "3", "3"]), (3, "0-3", ["0", "1", "2-3"]), (2, "", ["", ""])],
)
def test_lanes_have_gpus_of_their_own_or_share_them_where_they_are_few(
    streams: int, gpus: str, expected: list[str]
) -> None:
    assert [share.gpus for share in shares(Streams(streams), places("0-3", gpus=gpus))] == expected


def test_streams_that_communicate_see_all_gpus_of_their_place_and_pick_by_their_local_number() -> None:
    found = shares(Streams(2, together=True), places("0-3", gpus="0-1"))
    assert [(share.local, share.gpus) for share in found] == [(0, "0-1"), (1, "0-1")]


def test_more_nodes_than_streams_leave_some_empty() -> None:
    assert [(share.stream, share.at, share.beside) for share in shares(Streams(2), places("0", "0", "0"))] == [
        (0, 0, 1),
        (1, 1, 1),
    ]


def test_streams_that_communicate_and_have_no_room_side_by_side_are_told_with_all_numbers() -> None:
    assert crowding(Streams(10, 2, together=True), 4, 2) == (
        "10 streams that communicate all run at the same time: on 2 nodes that is 5 on one, which needs 10 cores there "
        "(2 each), but the step asks for 4 cores of each node"
    )
    assert crowding(Streams(10, 2, together=True), 10, 2) == ""
    assert crowding(Streams(10, 2), 4, 2) == "", "those that do not communicate wait for each other"


def test_output_of_a_later_attempt_lies_beside_that_of_the_first() -> None:
    assert output_stem("run/run.sh", 3, 1) == "run/run.sh.3"
    assert output_stem("run/run.sh", 3, 2) == "run/run.sh.attempt-2.3"


def test_a_share_is_a_value() -> None:
    assert Share(0, 0, 10, 0, "0", "", 0, 1) == shares(Streams(1), places("0"))[0]
