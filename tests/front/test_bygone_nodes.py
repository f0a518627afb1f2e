"""What is told of the nodes of a run that is over."""

from __future__ import annotations

from cantle.model.records import Launch, NodeLost, NodesJoined, RunResumed, RunStarted, StudyAdded, TaskEnded
from cantle.model.resources import Node, Place
from cantle.report.bygone import Stay, bygone_objects, bygone_table, stays

A, B, C = Node("a", 4), Node("b", 2, kind="fat"), Node("c", 1)


def on(*nodes: int) -> tuple[Place, ...]:
    return tuple(Place(node, "0") for node in nodes)


RECORDS = [
    RunStarted(0.0, "run", "0", "host", 1),
    NodesJoined(1.0, [A, B]),
    Launch(2.0, 0, 1, on(0)),
    Launch(2.0, 1, 1, on(1)),
    Launch(2.0, 2, 1, on(0, 1)),
    TaskEnded(3.0, 0, 1, "done"),
    TaskEnded(4.0, 2, 1, "done"),
    NodeLost(5.0, 1, "its runner was killed"),
    TaskEnded(6.0, 1, 1, "lost"),
    Launch(6.0, 1, 2, on(0)),
    RunResumed(20.0, "host", 2),
    NodesJoined(21.0, [C]),
    Launch(22.0, 1, 3, on(2)),
    TaskEnded(25.0, 1, 3, "done"),
]


def test_each_stay_of_a_node_has_its_end_and_what_was_done_there() -> None:
    assert stays(RECORDS) == [
        Stay(A, 1.0, 6.0, "", 2),  # nobody was there from then until the run was resumed
        Stay(B, 1.0, 5.0, "its runner was killed", 1),
        Stay(C, 21.0, 25.0, "", 1),
    ]


def test_what_was_made_again_elsewhere_counts_there_and_late_news_of_an_old_attempt_nowhere() -> None:
    again = [Launch(26.0, 1, 4, on(0)), TaskEnded(27.0, 1, 3, "done"), TaskEnded(28.0, 1, 4, "done")]
    assert [stay.done for stay in stays([*RECORDS, *again[:2]])] == [2, 1, 0]
    assert [stay.done for stay in stays([*RECORDS, *again])] == [3, 1, 0]


def test_where_records_are_missing_the_others_still_tell() -> None:
    assert [stay.done for stay in stays(record for record in RECORDS if record.time != 21.0)] == [2, 1]
    assert stays([]) == []


def test_the_table_names_kinds_where_there_are_any_and_says_when_there_was_no_node() -> None:
    heads, *rows = bygone_table(stays(RECORDS))
    assert heads.split()[:4] == ["NAME", "KIND", "CORES", "DONE"]
    assert [row.split()[:4] for row in rows] == [["a", "-", "4", "2"], ["b", "fat", "2", "1"], ["c", "-", "1", "1"]]
    assert rows[1].endswith("its runner was killed")
    assert "KIND" not in next(bygone_table(stays(RECORDS)[:1]))
    assert list(bygone_table([])) == ["it never had a node"]


def test_programs_are_told_the_same() -> None:
    first, second, _ = bygone_objects(stays(RECORDS))
    assert (first["node"], first["state"], first["done"]) == (0, "gone", 2)
    assert (second["why"], second["kind"], second["left_at"]) == ("its runner was killed", "fat", 5.0)


def test_a_node_that_had_gone_before_a_study_came_to_its_pilot_is_none_that_it_had() -> None:
    """What was before is told to the study as of the moment at which it came."""
    came = [
        RunStarted(9.0, "second", "0", "host", 1),
        NodesJoined(9.0, [A, C]),
        NodeLost(9.0, 0, "a: its runner was killed"),
        StudyAdded(9.0, "second", []),
        Launch(10.0, 0, 1, on(1)),
        TaskEnded(12.0, 0, 1, "done"),
    ]
    assert [row.split()[:3] for row in bygone_table(stays(came))] == [["NAME", "CORES", "DONE"], ["c", "1", "1"]]
    assert [(each["node"], each["done"]) for each in bygone_objects(stays(came))] == [(1, 1)]


def test_why_a_node_went_does_not_begin_with_its_name_once_more() -> None:
    went = [NodesJoined(1.0, [A]), NodeLost(5.0, 0, "a: its runner gave no sign of life for 20 s")]
    assert list(bygone_table(stays(went)))[1].endswith("  its runner gave no sign of life for 20 s")
