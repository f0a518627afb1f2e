"""Steps that may run on several numbers of nodes, in several streams, in a partition."""

from __future__ import annotations

import os

import pytest
from maestro_ours import one_step, problems, read, write

from cantle.model.resources import Needs, Node, Place
from cantle.model.study import PartitionWish


def step(folder, run, top=""):
    (only,) = read(write(folder, one_step(run, top))).steps
    return only


def command(folder, run, width, top=""):
    """What the only task runs on so many nodes."""
    study = read(write(folder, one_step(run, top)))
    places = tuple(Place(n, "0") for n in range(width))
    nodes = tuple(Node(f"n{n}", 1, machine=os.uname().nodename) for n in range(width))
    return study.work("/run").command(0, 1, False, places, nodes)


@pytest.mark.parametrize(
    ("run", "widths", "times_s"),
    [
        ("widths: [1, 2, 4]", (1, 2, 4), ()),
        ("widths: 1, 2, 4", (1, 2, 4), ()),
        ("widths: [2]", (2,), ()),
        ("widths: 2", (2,), ()),
        ("widths: {1: 8 min, 2: 5 min, 4: 3 min}", (1, 2, 4), (480, 300, 180)),
        ("widths: {1: 8 min, 2: ~, 4: 90}", (1, 2, 4), (480, 0, 90)),
        ("widths: {1: ~, 2: ~}", (1, 2), ()),
        ("widths: {1: '1:30:00'}", (1,), (5400,)),
    ],
)
def test_widths_are_a_list_of_nodes_or_say_how_long_it_takes_on_each(run, widths, times_s, tmp_path):
    found = step(tmp_path, run)
    assert (found.widths, found.times_s) == (widths, times_s)
    assert found.needs == Needs(nodes=widths[0])


def test_the_time_on_the_least_width_is_the_estimate_where_none_is_given(tmp_path):
    def estimate_s(run):
        return read(write(tmp_path, one_step(run))).tasks[0].estimate_s

    assert estimate_s("widths: {2: 8 min, 4: 5 min}") == 480
    assert estimate_s("widths: {2: ~, 4: 5 min}") == 0
    assert estimate_s("widths: [1, 2]") == 0
    assert estimate_s("widths: {2: 8 min}\nestimate: 7 s") == 7


def test_widths_and_their_times_may_vary(tmp_path):
    top = "global.parameters:\n  W: {values: [2, 3], label: W.%%}\n  T: {values: [10, 20], label: T.%%}"
    study = read(write(tmp_path, one_step("widths: {1: $(T) s, $(W): 5}", top)))
    assert [(s.widths, s.times_s) for s in study.steps] == [((1, 2), (10, 5)), ((1, 3), (20, 5))]
    assert [task.estimate_s for task in study.tasks] == [10, 20]
    assert [s.widths for s in read(write(tmp_path, one_step("widths: [1, $(W)]", top))).steps] == [(1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("run", "key", "what"),
    [
        ("widths: [1, 2, 2]", "widths", "2 is listed twice"),
        ("widths: [4, 2]", "widths", "2 stands after 4"),
        ("widths: [0, 1]", "widths", "cannot run on 0 nodes"),
        ("widths: [-1]", "widths", "'-1' is no number of nodes"),
        ("widths: [1.5]", "widths", "'1.5' is no number of nodes"),
        ("widths: []", "widths", "lists no number of nodes"),
        ("widths: {}", "widths", "lists no number of nodes"),
        ("widths: [[1, 2]]", "widths", "must list numbers of nodes, not a list"),
        ("widths: true", "widths", "must list numbers of nodes, not yes/no"),
        ("widths: ~", "widths", "must list numbers of nodes, not nothing"),
        ("widths: [$(N)]", "widths", "'$(N)' is no number of nodes"),
        ("widths: {1: soon}", "widths.1", "not 'soon'"),
        ("widths: {2: 0 s}", "widths.2", "takes longer than 0 s"),
        ("widths: [1, 2]\nnodes: 2", "widths", "either `nodes` or `widths`"),
        ("widths: [2, 4]\nprocs: 3", "procs", "3 processes cannot be dealt equally to 2 nodes"),
        ("streams: 0", "streams", "must be at least 1"),
        ("streams: some", "streams", "must be a whole number"),
        ("streams: true", "streams", "the study does not say how many"),
        ("streams: 100000000000", "streams", "is 100,000,000,000, but must be at most 1,000,000"),
        ("streams: '1000001'", "streams", "is 1,000,001, but must be at most 1,000,000"),
        ("communicates: true", "communicates", "no streams that could communicate"),
        ("streams: 2\ncommunicates: 7", "communicates", "must be true or false"),
        ("streams: 2\nwidths: [1, 4]", "widths", "2 streams on 4 nodes leave 2 nodes with nothing to do"),
        ("streams: 1\nnodes: 2", "nodes", "1 stream on 2 nodes leave 1 node with nothing to do"),
        (
            "streams: 8\ncommunicates: true\nprocs: 4\nnodes: 2\ncores per task: 3",
            "procs",
            "on 2 nodes 4 of the 8 on each, with 12 cores; but `procs: 4` asks for 6 cores of a node",
        ),
        ("partition: ''", "partition", "is empty"),
        ("partition: [a]", "partition", "must be text"),
        ("kind: [a]", "kind", "must be text"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(run, key, what, tmp_path):
    (problem,) = problems(tmp_path, one_step(run))
    assert problem.key == f"study[0].run.{key}"
    assert what in problem.what
    assert problem.line >= 7


def test_a_number_that_nobody_could_count_to_is_no_number_here(tmp_path):
    told = [problem.what for problem in problems(tmp_path, one_step(f"procs: {'9' * 5000}"))]
    assert any(what.startswith(f"cannot read '{'9' * 40}...'") for what in told)
    assert problems(tmp_path, one_step(f"procs: '{'9' * 5000}'"))[0].what.startswith("must be a whole number")


def test_a_mend_says_what_would_be_right(tmp_path):
    mends = {
        "widths: [1, 2]\nnodes: 2": "remove `nodes: 2`, or list it in `widths`",
        "widths: [2, 4]\nprocs: 3": "with `widths` each node holds as many at every width; 4, say",
        "widths: [4, 2]": "write them in ascending order",
        "streams: 8\ncommunicates: true\nprocs: 4\nwidths: [2, 4]": "leave `procs` away, or say 8",
    }
    assert {run: problems(tmp_path, one_step(run))[0].mend for run in mends} == mends


# What a node holds


@pytest.mark.parametrize(
    ("run", "needs", "ranks"),
    [
        ("widths: [1, 2]\nprocs: 8", Needs(cores=8), 8),
        ("widths: [2, 4]\nprocs: 8\ncores per task: 2", Needs(cores=8, nodes=2), 8),
        ("widths: [2, 4]\ncores per task: 3", Needs(cores=3, nodes=2), 2),
        ("widths: [1, 2]\nexclusive: true", Needs(whole_nodes=True), 1),
        ("streams: 40\nnodes: 2\nprocs: 8\ncores per task: 3", Needs(cores=12, nodes=2), 0),
        ("streams: 40\nwidths: [4, 10]", Needs(nodes=4), 0),
        ("streams: 3\nnodes: 2\ncommunicates: true\ncores per task: 2", Needs(cores=4, nodes=2), 0),
        ("streams: 40\nwidths: [4, 10]\ncommunicates: true", Needs(cores=10, nodes=4), 0),
        ("streams: 4\ncommunicates: true", Needs(cores=4), 0),
    ],
)
def test_needs_are_those_of_one_node_at_the_least_width(run, needs, ranks, tmp_path):
    found = step(tmp_path, run)
    assert (found.needs, found.ranks) == (needs, ranks)


def test_streams_communication_and_partition_reach_the_step(tmp_path):
    found = step(tmp_path, "streams: 4\ncommunicates: true\npartition: sim\ncores per task: 2")
    assert (found.streams, found.communicates, found.partition, found.cores_per_rank) == (4, True, "sim", 2)
    plain = step(tmp_path, "")
    assert (plain.streams, plain.communicates, plain.partition, plain.widths) == (0, False, "", ())


def test_a_partition_and_streams_may_vary(tmp_path):
    top = "global.parameters:\n  P: {values: [2, 3], label: P.%%}"
    steps = read(write(tmp_path, one_step("streams: $(P)\npartition: p$(P)", top))).steps
    assert [(s.streams, s.partition) for s in steps] == [(2, "p2"), (3, "p3")]


def test_streams_may_be_as_many_as_the_study_says_for_all_steps(tmp_path):
    assert step(tmp_path, "streams: true\nnodes: 4", "cantle: {streams: 400}").streams == 400


def test_own_keys_may_stand_apart_and_then_win_over_nodes_that_are_for_maestro(tmp_path):
    from maestro_oracle import instances

    top = "cantle: {steps: {work: {widths: {1: 9 s, 2: 5 s}, streams: 8, communicates: true, partition: p}}}"
    path = write(tmp_path, one_step("nodes: 2\nprocs: 16", top))
    study = read(path)
    (found,) = study.steps
    assert (found.widths, found.times_s, found.streams, found.partition) == ((1, 2), (9, 5), 8, "p")
    assert found.needs == Needs(cores=8)
    assert "work" in instances(path, tmp_path / "out")


def test_processes_of_maestros_nodes_are_dealt_to_the_widths(tmp_path):
    run, top = "nodes: 2\nprocs: 8", "cantle: {steps: {work: {widths: [1, 4]}}}"
    assert step(tmp_path, run, top).needs == Needs(cores=4)
    run += "\ncmd: $(LAUNCHER) sim"
    assert command(tmp_path, run, 4, top).script.endswith("mpiexec -n 16 sim\n")


# What is known at the launch


def test_the_width_that_was_chosen_reaches_command_environment_and_launcher(tmp_path):
    run = "cmd: $(LAUNCHER) sim $(WIDTH)\nwidths: [1, 2, 4]\nprocs: 2\nenv: {ON: $(WIDTH) nodes, CANTLE_WIDTH: no}"
    for width in (1, 2, 4):
        found = command(tmp_path, run, width)
        assert f"\nmpiexec -n {2 * width} sim {width}\n" in found.script
        assert found.env["ON"] == f"{width} nodes" and found.env["CANTLE_WIDTH"] == str(width)


def test_the_nodes_of_a_moldable_step_are_told_at_every_width(tmp_path):
    """One script serves all widths: it finds its nodes where it runs on one as well."""
    for width in (1, 2, 4):
        env = command(tmp_path, "cmd: sim\nwidths: [1, 2, 4]", width).env
        names = ",".join(f"n{n}" for n in range(width))
        assert (env["CANTLE_NODES"], env["CANTLE_NODELIST"]) == (str(width), names)


def test_a_step_on_one_node_is_told_no_width(tmp_path):
    found = command(tmp_path, "cmd: echo $(WIDTH)", 1)
    assert (found.script.splitlines()[-1], found.env) == ("echo 1", {})
    assert command(tmp_path, "nodes: 2", 2).env["CANTLE_WIDTH"] == "2"


def test_a_launcher_without_places_stands_for_the_least_width(tmp_path):
    study = read(write(tmp_path, one_step("cmd: $(LAUNCHER) sim $(WIDTH)\nwidths: [2, 4]")))
    assert study.work("/run").command(0, 1, False, (), ()).script.endswith("mpiexec -n 2 sim 2\n")


def test_the_number_of_streams_is_a_token_of_steps_that_have_some(tmp_path):
    assert command(tmp_path, "cmd: echo $(STREAMS)\nstreams: 8", 1).script.endswith("echo 8\n")
    assert command(tmp_path, "cmd: echo $(STREAMS)", 1).script.endswith("echo $(STREAMS)\n")


def test_names_of_the_study_come_before_the_tokens(tmp_path):
    top = "env: {variables: {WIDTH: 7}}"
    assert command(tmp_path, "cmd: echo $(WIDTH)\nnodes: 2", 2, top).script.endswith("echo 7\n")


def test_parts_of_a_moldable_step_have_to_fit_its_least_width(tmp_path):
    (problem,) = problems(tmp_path, one_step("cmd: $(LAUNCHER)[2n, 2p] a\nwidths: [1, 2]\nprocs: 2"))
    assert "add up to 2 nodes, but the step has 1" in problem.what


# Partitions


def test_partitions_are_declared_with_size_and_layout(tmp_path):
    top = """
cantle:
  partitions:
    sim: {nodes: 2, cores: 4, gpus: 1, memory: 4 GiB, kind: big, layout: contiguous, near: [a, b]}
    rest: ~
    one: {near: a}
"""
    study = read(write(tmp_path, one_step("partition: sim", top)))
    assert study.partitions == (
        PartitionWish("sim", 2, 4, 1, 4096, "big", "contiguous", ("a", "b")),
        PartitionWish("rest"),
        PartitionWish("one", near=("a",)),
    )
    assert study.warnings == []


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("[a]", "", "must be a mapping"),
        ("{a: 3}", ".a", "must be a mapping"),
        ("{'': {}}", ".", "cannot be the name"),
        ("{a: {nodes: 0}}", ".a.nodes", "must be a whole number, 1 or more, not 0"),
        ("{a: {cores: many}}", ".a.cores", "must be a whole number, 0 or more, not many"),
        ("{a: {gpus: [1]}}", ".a.gpus", "not a list"),
        ("{a: {memory: much}}", ".a.memory", "must be '4 GB'"),
        ("{a: {kind: [x]}}", ".a.kind", "must be one word"),
        ("{a: {layout: spred}}", ".a.layout", "'spred' is no layout"),
        ("{a: {near: [[x]]}}", ".a.near", "must name machines"),
        ("{a: {width: 3}}", ".a.width", "is not known here"),
    ],
)
def test_a_wrong_partition_is_told_with_its_place(text, key, what, tmp_path):
    (problem,) = problems(tmp_path, one_step(top=f"cantle: {{partitions: {text}}}"))
    assert problem.key == f"cantle.partitions{key}"
    assert what in problem.what


@pytest.mark.parametrize(
    ("wish", "run", "key", "what"),
    [
        ("nodes: 1", "nodes: 2", "nodes", "takes 2 nodes; its partition p has 1 node"),
        ("nodes: 3", "widths: [4, 8]", "widths", "takes 4 nodes; its partition p has 3 nodes"),
        ("cores: 2", "cores per task: 3", "cores per task", "takes 3 cores of each node; its partition p has 2 cores"),
        ("cores: 2", "procs: 3", "procs", "takes 3 cores of each node; its partition p has 2 cores of each node"),
        ("cores: 2", "exclusive: true", "exclusive", "takes whole nodes; its partition p has 2 cores of each node"),
        ("cores: 2", "gpus: 1", "gpus", "takes 1 GPU of each node; its partition p has 0 GPUs"),
        (
            "cores: 1, memory: 1 GiB",
            "memory: 2 GiB",
            "memory",
            "takes 2048 MiB of memory; its partition p has 1024 MiB",
        ),
        ("cores: 2", "resources: {licences: 1}", "resources.licences", "a part of a node has no such thing"),
        (
            "elements: 1 x 2 + 1 x 4",
            "nodes: 3",
            "nodes",
            "takes 3 nodes; its partition p has elements of 2 and 4 nodes",
        ),
        ("elements: 1 x 2", "", "partition", "takes 1 node; its partition p has elements of 2 nodes"),
    ],
)
def test_a_step_that_can_never_fit_its_declared_partition_is_a_mistake(wish, run, key, what, tmp_path):
    top = f"cantle: {{partitions: {{p: {{{wish}}}}}}}"
    (problem,) = problems(tmp_path, one_step(f"partition: p\n{run}", top))
    assert problem.key == f"study[0].run.{key}"
    assert what in problem.what
    assert "cantle.partitions.p" in problem.mend


@pytest.mark.parametrize(
    ("wish", "run"),
    [
        ("nodes: 2", "nodes: 2\nprocs: 64\nexclusive: true\ngpus: 3\nresources: {licences: 1}"),
        ("nodes: 2", "widths: [1, 2, 4]"),
        ("nodes: 2, cores: 4, gpus: 1", "nodes: 2\nprocs: 8\ngpus: 1\nmemory: 2 GB"),
        ("elements: 1 x 2 or 1 x 4", "widths: [1, 2]"),
    ],
)
def test_a_step_that_may_fit_its_declared_partition_is_none(wish, run, tmp_path):
    top = f"cantle: {{slices: [1 x 2, 1 x 4], partitions: {{p: {{{wish}}}}}}}"
    assert read(write(tmp_path, one_step(f"partition: p\n{run}", top))).warnings == []


def test_a_partition_that_nobody_declares_is_odd(tmp_path):
    top = "cantle: {partitions: {simulation: {}}}"
    (warning,) = read(write(tmp_path, one_step("partition: simulations", top))).warnings
    assert "no partition 'simulations' is declared" in warning and "did you mean 'simulation'?" in warning
    (warning,) = read(write(tmp_path, one_step("partition: simulations"))).warnings
    assert "no partition 'simulations' is declared" in warning
