"""How slices and wants are written, where, and what is wrong with them."""

from __future__ import annotations

import pytest
from maestro_ours import one_step, problems, read, write

from cantle.errors import RequestError, StudyError
from cantle.model.resources import Node
from cantle.model.slicing import Combination, choices_of, faults_of, fit, named, slice_of, slices_of
from cantle.model.study import Slice, Slicing
from cantle.readers.slicing import asked_for, from_file

THOR = (Slice(400, 3), Slice(100, 2), Slice(50, 2), Slice(20, 1))


@pytest.mark.parametrize(
    ("text", "slices"),
    [
        ("3 x 400, 2 x 100, 2 x 50, 1 x 20", THOR),
        ("3x400,2X100", THOR[:2]),
        ("3 x 400/4", (Slice(400, 3, 4),)),
        (" 3 x 400 / 4 ,", (Slice(400, 3, 4),)),
        ("", ()),
    ],
)
def test_slices_are_written_copies_x_width_and_cores(text, slices):
    assert slices_of(text) == slices
    assert slices_of(", ".join(map(named, slices))) == slices


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("400", "'400' is no slice; write COPIES x WIDTH"),
        ("3 by 400", "is no slice"),
        ("0 x 400", "is a slice of no copies"),
        ("3 x 0", "is a slice of no nodes"),
        ("3 x 400 / 0", "is a slice of no cores"),
        ("3 x 400 / 4 / 2", "is no slice"),
    ],
)
def test_what_is_no_slice_is_told_with_what_would_be(text, what):
    with pytest.raises(ValueError, match=what):
        slice_of(text)


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("2 x 400 + 3 x 50, at most 4", (Combination(((400, 2), (50, 3)), 4),)),
        ("9x50", (Combination(((50, 9),)),)),
        (
            "2 x 400 or 8 x 50 at most 4 or 1 x 20",
            (Combination(((400, 2),)), Combination(((50, 8),), 4), Combination(((20, 1),))),
        ),
        ("1 x 50 + 2 x 50", (Combination(((50, 3),)),)),
        ("0 x 50, at most 0", (Combination(((50, 0),), 0),)),
    ],
)
def test_wants_are_sums_with_a_bound_and_alternatives_in_order_of_preference(text, choices):
    assert choices_of(text) == choices
    assert choices_of(" or ".join(map(str, choices))) == choices


@pytest.mark.parametrize(
    ("text", "what"), [("", "is no number"), ("2 x", "is no number"), ("1 x 0", "no nodes"), ("2 x 4, 3 x 5", "is no")]
)
def test_what_is_no_want_is_told(text, what):
    with pytest.raises(ValueError, match=what):
        choices_of(text)


# Where it may be said


@pytest.mark.parametrize(
    "block",
    [
        "cantle: {streams: 400, slices: [3 x 400, 2 x 100, 2 x 50, 1 x 20], max_active: 6}",
        "cantle: {streams: 400, slices: '3 x 400, 2 x 100, 2 x 50, 1 x 20', max_active: 6}",
        "cantle:\n  max_active: 6\n  streams: 400\n  slices: [{width: 400, copies: 3}, 2 x 100, 2x50, {width: 20}]",
    ],
)
def test_a_study_says_its_slices_in_short_or_in_long(block, tmp_path):
    assert read(write(tmp_path, one_step(top=block))).slicing == Slicing(THOR, 400, 6)
    assert read(write(tmp_path, one_step())).slicing is None


def test_a_file_of_its_own_says_the_same(tmp_path):
    path = write(tmp_path, "streams: 400\nslices: [3 x 400, 2 x 100, 2 x 50, 1 x 20]\nmax_active: 6\n", "slices.yaml")
    assert from_file(path) == asked_for(str(path), 0, 0) == Slicing(THOR, 400, 6)
    assert asked_for(str(path), 800, 2) == Slicing(THOR, 800, 2)


@pytest.mark.parametrize("text", ["- 2 x 4\n- {width: 8}\n", "2 x 4, 1 x 8\n"])
def test_a_file_may_be_the_list_of_slices_alone_as_the_option_is(text, tmp_path):
    assert from_file(write(tmp_path, text, "slices.yaml")) == asked_for("2 x 4, 1 x 8", 0, 0)


def test_options_overrule_the_study(tmp_path):
    path = write(
        tmp_path, one_step("streams: true\nnodes: 20", "cantle: {streams: 400, slices: [1 x 20], max_active: 1}")
    )
    study = read(path, slicing=asked_for("2 x 20", 0, 0))
    assert study.slicing == Slicing((Slice(20, 2),), 400)
    study = read(path, slicing=asked_for("", 800, 0))
    assert study.slicing == Slicing((Slice(20, 1),), 800, 1)
    assert study.steps[0].streams == 800


def test_a_resumed_run_is_sliced_as_it_was_asked_for(tmp_path):
    from cantle.readers.maestro import MaestroReader

    study = read(write(tmp_path, one_step()), slicing=asked_for("2 x 20", 40, 2))
    folder = tmp_path / "kept"
    folder.mkdir()
    for name, data in study.keep.items():
        (folder / name).write_bytes(data)
    assert MaestroReader().reopen(folder).slicing == study.slicing == Slicing((Slice(20, 2),), 40, 2)


@pytest.mark.parametrize(
    ("slices", "what"),
    [
        ("3 by 400", "--slices: '3 by 400' is no slice"),
        (" , ", "lists no slice"),
        ("not-there.yaml", "--slices not-there.yaml: cannot be read"),
    ],
)
def test_a_wrong_option_is_told(slices, what):
    with pytest.raises(RequestError, match=what):
        asked_for(slices, 0, 0)


def test_more_streams_than_there_can_be_are_told_as_an_option_too():
    with pytest.raises(RequestError, match="--streams is 1,000,001, but must be at most 1,000,000"):
        asked_for("", 1_000_001, 0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("7", "the file is a number, not a mapping or a list"),
        ("", "the file is empty\n    a file of slices says `slices:"),
        ("- 3 x 400\n- x", r":2: slices\[1\]: 'x' is no slice"),
        ("bogus: 1\nslices: [1 x 2]", "slices.yaml:1: bogus: is not known here"),
        ("streams: 4", "slices: is missing"),
        ("slices: [3 x 400]\nthrottle: 3", "throttle: is not known here"),
        ("slices: [x]", r"slices\[0\]: 'x' is no slice"),
    ],
)
def test_a_wrong_file_is_told_with_its_place(text, what, tmp_path):
    with pytest.raises(StudyError, match=what):
        from_file(write(tmp_path, text, "slices.yaml"))


@pytest.mark.parametrize(
    ("block", "key", "what"),
    [
        ("slices: 7", "slices", "must be a slice, not a number"),
        ("slices: []\n  max_active: 2", "max_active", "no slices to bound"),
        ("slices: [3 x 400, 2 by 100]", "slices[1]", "'2 by 100' is no slice"),
        ("slices: [{copies: 2}]", "slices[0].width", "is missing"),
        ("slices: [{width: 0}]", "slices[0].width", "must be a whole number, 1 or more, not 0"),
        ("slices: [{width: 4, copy: 2}]", "slices[0].copy", "is not known here"),
        ("slices: [1 x 4]\n  max_active: 0", "max_active", "must be a whole number, 1 or more"),
        ("slices: [1 x 4]\n  streams: lots", "streams", "not lots"),
        ("streams: 1000001", "streams", "is 1,000,001, but must be at most 1,000,000"),
        ("slices: [6000 x 4, 6000 x 2]", "slices", "the slices have 12,000 copies in all"),
        (
            "slices: [1 x 300]\n  streams: 400",
            "slices",
            "1 x 300: 400 streams cannot be dealt equally to 300 nodes: 100 nodes would have 2 of them and 200 nodes 1",
        ),
        ("slices: [1 x 500]\n  streams: 400", "slices", "100 of the nodes would have none"),
    ],
)
def test_what_is_wrong_in_a_study_is_told_with_the_arithmetic(block, key, what, tmp_path):
    (problem,) = problems(tmp_path, one_step(top=f"cantle:\n  {block}"))
    assert problem.key == f"cantle.{key}"
    assert what in problem.what
    assert problem.line > 6


def test_the_nearest_widths_that_divide_the_streams_are_named():
    assert [mend for _, mend in faults_of(Slicing((Slice(300), Slice(500)), 400))] == [
        "widths near it that divide 400: 200 and 400",
        "widths near it that divide 400: 400",
    ]
    assert faults_of(Slicing(THOR, 400, 6)) == faults_of(Slicing(THOR)) == []


def test_a_step_for_which_there_is_no_slice_is_a_mistake_and_one_for_some_widths_is_odd(tmp_path):
    top = "cantle: {slices: [1 x 4, 2 x 2]}"
    (problem,) = problems(tmp_path, one_step("widths: [3, 5]", top))
    assert (problem.key, problem.what) == (
        "study[0].run.widths",
        "no slice has elements of 3 or 5 nodes: there are 2 and 4",
    )
    (problem,) = problems(tmp_path, one_step("nodes: 3", top))
    assert problem.key == "study[0].run.nodes"
    (warning,) = read(write(tmp_path, one_step("widths: [2, 3, 4]", top))).warnings
    assert "no slice has elements of 3 nodes" in warning
    for free in ("nodes: 1", "nodes: 3\npartition: p", "widths: [2, 4]"):
        declared = top.replace("}", ", partitions: {p: {nodes: 3}}}") if "partition" in free else top
        assert read(write(tmp_path, one_step(free, declared))).warnings == []


# With nodes


def nodes(n, cores):
    return [Node(f"n{i}", cores) for i in range(n)]


def test_slices_that_suit_the_nodes_have_nothing_to_tell():
    assert fit(Slicing(THOR, 400, 6), nodes(400, 12)) == ([], [])
    assert fit(Slicing(), nodes(4, 1)) == fit(Slicing(THOR), []) == ([], [])


@pytest.mark.parametrize(
    ("slices", "max_active", "what"),
    [
        ("1 x 400", 0, "1 x 400 needs 400 nodes with 4 cores, and there are 399"),
        ("1 x 4 / 8", 0, "1 x 4 / 8 takes 8 cores of each node, and no node has more than 4"),
        ("6 x 4", 6, "no node has more than 4 cores: 4 // 6 = 0; bound the copies with max_active: 4, or say shares"),
    ],
)
def test_what_cannot_be_on_these_nodes_is_told_with_the_arithmetic(slices, max_active, what):
    (wrong,), _ = fit(Slicing(slices_of(slices), 0, max_active), nodes(399, 4))
    assert what in wrong


def test_spare_nodes_and_shares_that_run_out_are_told():
    wrong, known = fit(Slicing(slices_of("3 x 50 / 4")), nodes(399, 8))
    assert wrong == []
    spare, short = known
    assert spare == "3 x 50 / 4: 399 nodes are 7 elements of 50, and 49 nodes to spare: 7 * 50 = 350"
    assert short == (
        "3 copies may be active at once, but the widest shares add up to 4 + 4 + 4 = 12 cores of a node, and the largest has "
        "8: some copies wait for cores before they wait for the bound"
    )
