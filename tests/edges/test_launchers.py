"""Launchers: every argument explicit, nothing of an outer launch, exactly the nodes, ranks, cores and GPUs of the attempt."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from runner_rig import rig

from builders import Story, job, node
from cantle.core.state import State
from cantle.engines.launchers import choosing, probing, ranks
from cantle.engines.launchers.base import Host, Layout, Seat, Surroundings
from cantle.engines.launchers.found import Found
from cantle.engines.launchers.jsrun import Jsrun
from cantle.engines.launchers.layout import Table
from cantle.engines.launchers.mpich import Mpich
from cantle.engines.launchers.openmpi import OpenMpi
from cantle.engines.launchers.slurm import Srun
from cantle.engines.launchers.stale import compressed
from cantle.engines.process import ProcessEngine
from cantle.errors import StudyError
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import Command, Commands, Study
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot.sharing_work import SharedWork
from cantle.runtime.real import RealWorld
from cantle.testing import check_launcher

JOB = Surroundings("slurm", "42")
TWO = Layout((Host("n1", (Seat(), Seat())), Host("n2", (Seat(), Seat()))))


def option(words: tuple[str, ...], name: str) -> str:
    return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


def table(*cores: str, node_cores: int = 4, gpus: str = "", **more: int) -> Table:
    places = [Place(n, each, gpus) for n, each in enumerate(cores)]
    ids = tuple(range(10, 10 + node_cores))
    nodes = [Node(f"n{n + 1}", node_cores, 2, core_ids=ids, gpu_ids=("GPU-a", "GPU-b")) for n in range(len(cores))]
    return Table(places, nodes, **more)


def seats(layout: Layout) -> list[tuple[str, tuple[int, ...]]]:
    return [(host.name, seat.cores) for host in layout.hosts for seat in host.seats]


# Layout


def test_ranks_are_dealt_in_blocks_and_each_has_cores_of_its_own():
    layout = table("0-3", "0-3", "0-3", cores_each=2).whole(5)
    assert seats(layout) == [
        ("n1", (10, 11)), ("n1", (12, 13)), ("n2", (10, 11)), ("n2", (12, 13)), ("n3", (10, 11)),
    ]  # fmt: skip
    assert (layout.ranks, layout.even) == (5, 0)


def test_parts_of_a_script_run_beside_each_other():
    dealt = table("0-3", "0-3")
    first, second, third = dealt.part(2), dealt.part(4, 2), dealt.part(2)
    assert seats(first) == [("n1", (10,)), ("n1", (11,))]
    assert seats(second) == [("n1", (12,)), ("n1", (13,)), ("n2", (10,)), ("n2", (11,))]
    assert seats(third) == [("n2", (12,)), ("n2", (13,))]


def test_o14_two_tasks_of_two_ranks_share_a_node_of_four_cores_and_no_rank_shares_a_core():
    story = Story(*(job(f"t{i}", cores=2) for i in range(3)), on=[node("n", 4)])
    assert story.launches() == ["t0", "t1"], "side by side, and the third after them"
    dealt = [
        Table(launch.on, [Node("n", 4, core_ids=(4, 5, 6, 7))]).whole(2)
        for launch in map(story.launch_of, ("t0", "t1"))
    ]
    assert sorted(core for layout in dealt for _, cores in seats(layout) for core in cores) == [4, 5, 6, 7]
    story.end("t0")
    assert story.launches() == ["t2"]


def test_parts_that_name_single_nodes_get_different_ones():
    dealt = table("0-3", "0-3")
    assert [dealt.part(4, 1).hosts[0].name for _ in range(2)] == ["n1", "n2"]


def test_what_has_no_room_beside_the_others_begins_again_at_the_first_node():
    dealt = table("0-3", "0-3")
    dealt.part(8)
    assert seats(dealt.part(1)) == [("n1", (10,))]


def test_a_part_with_more_ranks_than_cores_shares_them():
    layout = table("0-1", "0-1").part(4, 1)
    assert seats(layout) == [("n1", (10, 11))] * 4


def test_a_part_on_more_nodes_than_the_step_has_cannot_be():
    with pytest.raises(ValueError, match="asks for 3 nodes, and the step has 2"):
        table("0", "0").part(3, 3)


def test_nodes_of_one_machine_are_one_host():
    nodes = [Node("a", 2, machine="m", core_ids=(0, 1)), Node("b", 2, machine="m", core_ids=(2, 3))]
    layout = Table([Place(0, "0-1"), Place(1, "0-1")], nodes).whole(4)
    assert seats(layout) == [("m", (0,)), ("m", (1,)), ("m", (2,)), ("m", (3,))]


def test_each_rank_sees_gpus_of_its_own_where_asked_O19():
    layout = table("0-1", "2-3", gpus="0-1", gpus_each=1).whole(4)
    assert [seat.gpus for host in layout.hosts for seat in host.seats] == [("GPU-a",), ("GPU-b",)] * 2
    shared = table("0-1", "2-3", gpus="0-1").whole(4)
    assert {seat.gpus for host in shared.hosts for seat in host.seats} == {("GPU-a", "GPU-b")}


# Flavours


@pytest.mark.parametrize("name", choosing.NAMES)
def test_each_of_ours_keeps_its_promises(name):
    around = Surroundings(environ={"LSB_MCPU_HOSTS": "batch 1 n1 4 n2 4"})
    check_launcher(choosing.launcher_named(name, lambda _: None), around)


def test_found_keeps_its_promises():
    check_launcher(Found())


def test_srun_is_told_everything_O13():
    words = Srun().prefix(TWO, JOB, "/r/s").words
    assert words == (
        "env", "SLURM_JOB_NODELIST=n1,n2", "srun", "--jobid=42", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2",
        "--nodelist=n1,n2", "--distribution=block", "--cpus-per-task=1", "--exact", "--mem=0", "--gres=none", "--export=ALL",
        "--kill-on-bad-exit=1", "--no-kill=off",
    )  # fmt: skip


def test_a_program_under_srun_sees_the_nodes_of_its_launch_in_slurms_order():
    """Slurm's PMIx looks at them, too: told of the whole job, it sends what two steps side by side say to wrong nodes."""
    layout = Layout(tuple(Host(name, (Seat(),)) for name in ("node10", "node9.site.org", "fat7")))
    assert Srun().prefix(layout, JOB, "/r/s").words[:2] == ("env", "SLURM_JOB_NODELIST=fat7,node9,node10")
    assert Srun().prefix(layout, Surroundings("slurm"), "/r/s").words[0] == "srun", "in no job there is nothing to hide"


def test_srun_overlaps_with_what_may_hang_on_from_a_lost_node_unless_gpus_would_be_given_twice():
    around = Surroundings("slurm", "42", orphans=True)
    words = Srun().prefix(TWO, around, "/r/s").words
    assert {"--overlap", "--whole", "--export=ALL,SLURM_CPUS_PER_TASK=1"} <= set(words)
    assert not {"--exact", "--cpus-per-task=1"} & set(words)
    layout = table("0-1", gpus="0-1", gpus_each=1).whole(2)
    assert "--exact" in Srun().prefix(layout, around, "/r/s").words


def test_srun_gets_memory_gpus_and_the_users_words():
    around = Surroundings("slurm", "42", mpi="openmpi", extra=("--label",))
    layout = table("0-1", gpus="0-1", gpus_each=1, memory_mib=500).whole(2)
    words = Srun().prefix(layout, around, "/r/s").words
    assert (option(words, "--mem"), option(words, "--gpus-per-task"), option(words, "--mpi")) == ("500", "1", "pmix")
    assert words[-1] == "--label"
    assert words[:3] == ("env", "-u", "CUDA_VISIBLE_DEVICES")  # which the runner has set to those of the first node
    layout = table("0-1", gpus="0-1").whole(2)
    assert "--gres=gpu:2" in Srun().prefix(layout, JOB, "/r/s").words


def test_srun_puts_an_uneven_layout_where_it_belongs():
    layout = Layout((Host("n1.site.org", (Seat(),) * 3), Host("n2", (Seat(),))))
    prefix = Srun().prefix(layout, JOB, "/r/s")
    assert prefix.files == {"/r/s.hosts": "n1\nn1\nn1\nn2\n"}
    assert prefix.words[:4] == ("env", "SLURM_JOB_NODELIST=n1,n2", "SLURM_HOSTFILE=/r/s.hosts", "srun")
    assert "--distribution=arbitrary" in prefix.words


def test_what_the_user_prefers_for_srun_counts_but_not_what_a_step_was_started_with():
    mine = Surroundings("slurm", "42", {"SLURM_MPI_TYPE": "pmi2"})
    assert option(Srun().prefix(TWO, mine, "/r/s").words, "--mpi") == "pmi2"
    inherited = Surroundings("slurm", "42", {"SLURM_MPI_TYPE": "none", "SLURM_STEP_ID": "0"})
    assert not any(word.startswith("--mpi") for word in Srun().prefix(TWO, inherited, "/r/s").words)


def test_programs_that_read_slurms_variables_see_the_partition_O12():
    stale = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_NTASKS": "9", "SLURM_JOB_ID": "42", "SLURM_STEP_NEW": "x"}
    stale |= {"SLURM_PMIX_MAPPING_SERV": "(vector,(0,1,4))", "SLURM_PMIX_FENCE": "ring"}
    prefix = OpenMpi().prefix(TWO, Surroundings("slurm", "42", stale), "/r/s")
    assert prefix.words[0] == "env"
    assert {"SLURM_TASKS_PER_NODE=2(x2)", "SLURM_NODELIST=n1,n2", "SLURM_NNODES=2"} <= set(prefix.words)
    env = prefix.env
    assert [env[name] for name in ("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_STEP_NEW")] == [None] * 3
    assert "SLURM_JOB_ID" not in env
    assert env["SLURM_PMIX_MAPPING_SERV"] is None and "SLURM_PMIX_FENCE" not in env, (
        "that is how somebody tunes his MPI"
    )


def test_where_an_mpirun_begins_without_ranks_it_is_still_in_the_first_node_that_it_sees():
    """Open MPI takes the first of Slurm's nodes for its own, and would start all ranks there."""
    dealt = table("0-3", "0-3")
    dealt.part(4, 1)
    second = dealt.part(4, 1)
    prefix = OpenMpi().prefix(second, JOB, "/r/s")
    assert {"SLURM_NODELIST=n1,n2", "SLURM_TASKS_PER_NODE=1,4"} <= set(prefix.words)
    assert prefix.files == {"/r/s.hosts": "n2 slots=4\n"}
    assert "-x" in OpenMpi().prefix(second, Surroundings(passed_on=("PATH",)), "/r/s").words


def test_sizes_are_compressed_as_slurm_does():
    assert compressed([4, 4, 2, 4]) == "4(x2),2,4"


def test_open_mpi_over_ssh_has_slots_and_notices_dead_hosts():
    around = Surroundings(passed_on=("PATH", "A"), environ={"OMPI_MCA_plm_rsh_args": "-o Port=2222"}, as_root=True)
    prefix = OpenMpi().prefix(TWO, around, "/r/s")
    assert prefix.files == {"/r/s.hosts": "n1 slots=2\nn2 slots=2\n"}
    assert shlex.join(prefix.words) == (
        "mpirun -n 4 --allow-run-as-root --bind-to none --map-by slot --hostfile /r/s.hosts -x PATH -x A"
    )
    assert prefix.env["OMPI_MCA_plm"] == "rsh"
    assert str(prefix.env["OMPI_MCA_plm_rsh_args"]).startswith("-o Port=2222 -o BatchMode=yes")
    assert "ServerAliveInterval" in str(prefix.env["PRTE_MCA_plm_ssh_args"])


def test_in_jobs_of_other_batch_systems_each_mpi_takes_its_own_way():
    around = Surroundings("pbs", "9")
    assert "OMPI_MCA_plm" not in OpenMpi().prefix(TWO, around, "/r/s").env
    assert "-bootstrap" not in Mpich().prefix(TWO, around, "/r/s").words


def test_open_mpi_by_another_agent_than_ssh_gets_no_words_of_ssh():
    around = Surroundings(environ={"OMPI_MCA_plm_rsh_agent": "/opt/bin/blaunch"})
    assert "OMPI_MCA_plm_rsh_args" not in OpenMpi().prefix(TWO, around, "/r/s").env


def test_mpich_gets_a_machine_file_and_its_bootstrap():
    prefix = Mpich().prefix(TWO, Surroundings(), "/r/s")
    assert shlex.join(prefix.words) == "mpiexec -n 4 -machinefile /r/s.machines -bootstrap ssh"
    assert prefix.files == {"/r/s.machines": "n1:2\nn2:2\n"}
    assert "-bootstrap slurm" in shlex.join(Mpich().prefix(TWO, JOB, "/r/s").words)


def test_jsrun_gets_a_resource_file_that_says_cores_and_gpus_of_each_rank():
    layout = table("0-1", "2-3", gpus="0-1", gpus_each=1, cores_each=2).whole(2)
    around = Surroundings("jsm", "7", {"LSB_MCPU_HOSTS": "batch 1 n1 4 n2 4"})
    (text,) = Jsrun().prefix(layout, around, "/r/s").files.values()
    assert (
        "rank: 0: { host: 1; cpu: {10,11}; gpu: {GPU-a} }\nrank: 1: { host: 2; cpu: {12,13}; gpu: {GPU-a} }\n" in text
    )
    with pytest.raises(ValueError, match="n1 is not among the hosts of this job"):
        Jsrun().prefix(layout, Surroundings(), "/r/s")


def test_flux_names_hosts_and_binds_ranks():
    words = choosing.launcher_named("flux", lambda _: None).prefix(TWO, Surroundings("flux"), "/r/s").words
    assert shlex.join(words) == (
        "flux run -N 2 -n 4 -c 1 --requires=hosts:n1,n2 -o cpu-affinity=per-task -o gpu-affinity=per-task"
    )


# The script that gives ranks what is theirs


def bound(tmp_path: Path, layout: Layout, rank: int, program: str, **env: str) -> str:
    path = tmp_path / "ranks"
    path.write_text(ranks.script(layout))
    clean = {"PATH": os.environ["PATH"], "OMPI_COMM_WORLD_RANK": str(rank), **env}
    return subprocess.run(
        ["/bin/sh", path, "/bin/sh", "-c", program], env=clean, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_rank_is_kept_on_its_cores(tmp_path):
    core = min(os.sched_getaffinity(0))
    layout = Layout((Host("a", (Seat(),)), Host("b", (Seat((core,)),))), bound=True)
    text = bound(tmp_path, layout, 1, "grep Cpus_allowed_list /proc/self/status")
    assert text.split()[1] == str(core)


def test_a_rank_whose_cores_are_not_there_runs_all_the_same(tmp_path):
    layout = Layout((Host("a", (Seat((4095,)),)),), bound=True)
    assert bound(tmp_path, layout, 0, "echo ran") == "ran"


def test_ranks_see_disjoint_gpus_O19(tmp_path):
    layout = table("0-1", "0-1", gpus="0-1", gpus_each=1).whole(4)
    seen = [bound(tmp_path, layout, rank, "echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES") for rank in range(4)]
    assert seen == ["GPU-a GPU-a", "GPU-b GPU-b"] * 2


def test_the_script_is_there_only_where_it_is_needed():
    whole = table("0-3", "0-3").whole(8)
    assert not ranks.is_needed(whole)
    assert ranks.is_needed(table("0-1", "0-1").whole(4))
    assert not ranks.is_needed(table("0-1").whole(2))
    halves = table("0-1", "0-1")
    assert [ranks.is_needed(halves.part(2, 1)) for _ in range(2)] == [False, True]
    assert ranks.is_needed(table("0-1", gpus="0-1", gpus_each=1).whole(2))


# Which of them


@pytest.mark.parametrize(
    ("environ", "preferred", "expected"),
    [
        ({}, "", ("", "")),
        ({"SLURM_JOB_ID": "7"}, "", ("slurm", "7")),
        ({"SLURM_JOB_ID": "7", "FLUX_URI": "local:///x"}, "", ("flux", "")),
        ({"SLURM_JOB_ID": "7", "FLUX_URI": "local:///x"}, "slurm", ("slurm", "7")),
        ({"LSB_JOBID": "3"}, "", ("lsf", "3")),
        ({"LSB_JOBID": "3", "JSM_JSRUN_PATH": "/x"}, "", ("jsm", "3")),
        ({"PBS_JOBID": "9.s"}, "slurm", ("pbs", "9.s")),
        ({"PE_HOSTFILE": "/x", "JOB_ID": "5"}, "", ("sge", "5")),
    ],
)
def test_in_which_job_we_are_is_told_by_the_environment(environ, preferred, expected):
    assert choosing.system_of(environ, preferred) == expected


def test_ranks_are_passed_what_they_need_and_no_more():
    environ = {"PATH": "/bin", "OMP_NUM_THREADS": "2", "HOME": "/root", "SLURM_JOB_ID": "1", "LANG": "C"}
    names = choosing.passed_on(environ, {"MINE": "1", "LANG": None, "CANTLE_WIDTH": "2"})
    assert names[:3] == ("CANTLE_RUN", "CANTLE_TASK", "CANTLE_ATTEMPT")
    assert names[3:] == ("CANTLE_WIDTH", "MINE", "OMP_NUM_THREADS", "PATH")


# What a study's script becomes

STUDY = """\
description: {name: s, description: d}
batch: {type: slurm%s}
study:
  - name: app
    description: d
    run:
      nodes: 2
      procs: 4
      %s
      cmd: %s
"""


@pytest.fixture
def in_a_job(monkeypatch, tmp_path):
    """A job of Slurm's, whose scontrol names no default for MPI, on a machine with Open MPI."""
    stub(tmp_path / "bin", "scontrol", "echo 'MpiDefault = none'")
    stub(tmp_path / "bin", "srun", "echo 'MPI plugin types are... pmi2, pmix'")
    stub(tmp_path / "bin", "mpiexec", "echo 'mpiexec (OpenRTE) 4.1.4'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    probing.plugin_for.cache_clear()
    yield
    probing.plugin_for.cache_clear()


def stub(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def read(tmp_path: Path, cmd: str, launcher: str = "", batch: str = "", more: str = "walltime: '10:00'") -> Study:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY % (batch, more, cmd))
    return MaestroReader().read(path, ReadOptions(launcher=launcher, elsewhere=True))


def first_of(work: Commands) -> Command:
    """The command of the first task, on two nodes."""
    nodes = tuple(Node(f"n{n}", 4) for n in (1, 2))
    return work.command(0, 1, False, (Place(0, "0-1"), Place(1, "2-3")), nodes)


def command(tmp_path: Path, cmd: str, launcher: str = "", batch: str = "", more: str = "walltime: '10:00'") -> Command:
    return first_of(read(tmp_path, cmd, launcher, batch, more).work("/out"))


def body(command: Command) -> str:
    return command.script.split("\n\n", 1)[1].strip()


def test_in_a_job_of_slurms_a_launch_is_a_step_on_exactly_its_nodes(in_a_job, tmp_path):
    made = command(tmp_path, "$(LAUNCHER) app")
    assert body(made) == (
        "env SLURM_JOB_NODELIST=n1,n2 "
        "srun --jobid=42 --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=n1,n2 --distribution=block "
        "--cpus-per-task=1 --exact --mem=0 --gres=none --export=ALL --kill-on-bad-exit=1 --no-kill=off --mpi=pmix app"
    )
    assert made.launches
    assert made.env["SLURM_MEM_PER_CPU"] is None


def test_launches_overlap_with_what_may_hang_on_in_the_run_that_has_lost_a_node_and_in_no_other(in_a_job, tmp_path):
    study = read(tmp_path, "$(LAUNCHER) app")
    hit, other = study.work("/out"), study.work("/out")
    inbox = SelectInbox()
    engine = ProcessEngine(inbox, str(tmp_path))
    RealWorld(State(), inbox, SimpleNamespace(open=lambda inbox: None), engine, hit)
    engine.launch_lost_a_node()
    assert " --overlap " in body(first_of(hit))
    assert " --overlap " not in body(first_of(other))
    inbox.close()


def test_what_may_hang_on_is_in_the_way_of_all_studies_of_a_pilot_also_of_later_ones(in_a_job, tmp_path):
    study = read(tmp_path, "$(LAUNCHER) app")
    early, late = study.work("/early"), study.work("/late")
    shared = SharedWork(State())
    shared.add(0, early)
    assert " --overlap " not in body(first_of(early))
    shared.launch_lost_a_node()
    shared.add(1, late)
    assert [" --overlap " in body(first_of(work)) for work in (early, late)] == [True, True]


def test_where_the_site_has_a_default_for_mpi_it_counts(in_a_job, tmp_path):
    stub(tmp_path / "bin", "scontrol", "echo 'MpiDefault              = cray_shasta'")
    assert "--mpi" not in body(command(tmp_path, "$(LAUNCHER) app"))


def test_parts_are_steps_on_the_nodes_that_they_say(in_a_job, tmp_path):
    lines = body(command(tmp_path, '"$(LAUNCHER)[1n, 2p] a & $(LAUNCHER)[1n, 2p] b"')).split(" & ")
    assert [option(tuple(line.split()), "--nodelist") for line in lines] == ["n1", "n2"]
    assert [option(tuple(line.split()), "--ntasks") for line in lines] == ["2", "2"]


def test_one_process_on_the_first_node_needs_no_launcher_unless_one_is_named(in_a_job, tmp_path):
    assert body(command(tmp_path, '"$(LAUNCHER)[1p] a"')) == "a"
    assert "--ntasks=1 " in body(command(tmp_path, '"$(LAUNCHER)[1p] a"', "srun"))
    second = body(command(tmp_path, '"$(LAUNCHER)[1n,1p] a; $(LAUNCHER)[1n,1p] b"'))
    assert second == "a; b"


def test_the_batch_block_names_the_mpi_and_adds_words_M15(in_a_job, tmp_path):
    words = body(command(tmp_path, "$(LAUNCHER) app", batch=", mpi: mpich, launcher_args: --label -v"))
    assert words.endswith("--mpi=pmi2 --label -v app")
    words = body(command(tmp_path, "$(LAUNCHER) app", batch=", launcher: openmpi"))
    assert "--hostfile /out/app/app.launch.hosts" in words


def test_over_ssh_the_first_node_says_what_it_has(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    made = command(tmp_path, "$(LAUNCHER) app")
    assert body(made) == "/bin/sh /out/app/app.launch.mpi app"
    assert made.files["/out/app/app.launch.hosts"] == "n1 slots=2\nn2 slots=2\n"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("mpiexec (OpenRTE) 4.1.4", "--hostfile"),
        ("mpirun (Open MPI) 5.0.3", "--hostfile"),
        ("HYDRA build details:", "-machinefile"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.10", "-machinefile"),
    ],
)
def test_each_mpi_gets_its_own_words_on_the_first_node(version, words, tmp_path):
    stub(tmp_path / "bin", "mpiexec", f'[ "$1" = --version ] && echo "{version}" || echo x "$@"')
    prefix = Found().prefix(TWO, Surroundings(), str(tmp_path / "launch"))
    for path, text in prefix.files.items():
        Path(path).write_text(text)
    env = {"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin"}
    said = subprocess.run([*prefix.words, "app", "a b"], env=env, check=True, capture_output=True, text=True).stdout
    assert words in said
    assert said.endswith("app a b\n")


def test_a_node_without_mpi_says_so(tmp_path):
    prefix = Found().prefix(TWO, Surroundings(), str(tmp_path / "launch"))
    for path, text in prefix.files.items():
        Path(path).write_text(text)
    stub(tmp_path / "bin", "uname", "echo n1")
    result = subprocess.run(
        [*prefix.words, "app"], env={"PATH": str(tmp_path / "bin")}, check=False, capture_output=True, text=True
    )
    assert result.returncode == 127
    assert "n1 has no mpiexec and no mpirun, but 4 ranks are to be started from there" in result.stderr


def test_cantles_own_runs_the_script_once_for_each_rank(tmp_path):
    made = command(tmp_path, "$(LAUNCHER) app", "cantle")
    assert (body(made), made.ranks, made.cores_each) == ("app", 4, 1)
    with pytest.raises(Exception, match="runs the whole script once for each rank"):
        command(tmp_path, '"$(LAUNCHER)[2p] app"', "cantle")


def test_an_unknown_launcher_is_a_mistake_of_the_study_and_a_plug_in_is_none(tmp_path):
    with pytest.raises(StudyError, match=r"(?s)batch.launcher: 'nosuch' is not known.* known are openmpi, mpich, srun"):
        command(tmp_path, "$(LAUNCHER) app", batch=", launcher: nosuch")
    made = command(tmp_path, "$(LAUNCHER) app", "cantle.engines.launchers.flux:Flux")
    assert body(made).startswith("flux run -N 2 -n 4")


GPUS = """\
description: {name: s, description: d}
study:
  - name: app
    description: d
    run:
      procs: 4
      gpus per task: 1
      cmd: %s
"""


def with_gpus(tmp_path: Path, cmd: str) -> tuple[Needs, Command]:
    path = tmp_path / "study.yaml"
    path.write_text(GPUS % cmd)
    study = MaestroReader().read(path, ReadOptions(launcher="mpich"))
    node = Node(os.uname().nodename, 4, 4, gpu_ids=("4", "5", "6", "7"))
    return study.steps[0].needs, study.work("/out").command(0, 1, False, (Place(0, "0-3", "0-3"),), (node,))


def test_gpus_per_task_are_gpus_of_the_node_and_each_rank_sees_its_own_O19(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    needs, made = with_gpus(tmp_path, "$(LAUNCHER) app")
    assert needs == Needs(cores=4, gpus=4)
    assert body(made) == "mpiexec -n 4 /bin/sh /out/app/app.launch.ranks app"
    text = made.files["/out/app/app.launch.ranks"]
    assert [f"{rank}) gpus={4 + rank} ;;" in text for rank in range(4)] == [True] * 4


def test_parts_of_a_script_share_no_gpu_O19(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    _, made = with_gpus(tmp_path, '"$(LAUNCHER)[2p] a & $(LAUNCHER)[2p] b; wait"')
    first, second = made.files.values()
    assert "0) gpus=4 ;;\n1) gpus=5 ;;" in first
    assert "0) gpus=6 ;;\n1) gpus=7 ;;" in second


# What real ones would make of it

SRUN = """#!{python}
import os, subprocess, sys
names = [word for word in sys.argv[1:] if word.startswith("--")]
said = dict(word.lstrip("-").partition("=")[::2] for word in names)
if "list" in said.get("mpi", ""):
    sys.exit(print("pmix"))
inherited = {{name.removeprefix("SLURM_"): value for name, value in os.environ.items()}}
if "MEM_PER_CPU" in inherited and "mem" in said:
    sys.exit("srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.")
nodes, tasks = int(said["nodes"]), int(said["ntasks"])
cores = int(said.get("cpus-per-task", inherited.get("CPUS_PER_TASK", 1)))
if tasks * cores > 4 * nodes:
    sys.exit("srun: error: Unable to create step for job 42: More processors requested than permitted")
if "NTASKS_PER_NODE" in inherited:
    sys.exit("srun: Warning: can't honor --ntasks-per-node")
program = sys.argv[1 + len(names):]
for rank in range(tasks):
    subprocess.run(program, env={{**os.environ, "SLURM_PROCID": str(rank)}}, check=True)
"""
STALE = {
    "SLURM_JOB_ID": "42",
    "SLURM_CPUS_PER_TASK": "8",
    "SLURM_MEM_PER_CPU": "100",
    "SLURM_NTASKS": "1",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_JOB_NODELIST": "n[1-9]",
    "SLURM_TRES_PER_TASK": "cpu:8",
}


def run_with_stubs(tmp_path: Path, made: Command) -> tuple[str, str]:
    """What the script of this command prints on two nodes under an environment of a batch script; and how it ended."""
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", **STALE}
    made = msgspec.structs.replace(
        made,
        script_path=str(tmp_path / "work.sh"),
        cwd=str(tmp_path),
        output_stem=str(tmp_path / "out"),
        files={path.replace("/out/app", str(tmp_path)): text for path, text in made.files.items()},
        script=made.script.replace("/out/app", str(tmp_path)),
    )
    with rig(tmp_path, Node("n1", 4), Node("n2", 4), env=env) as it:
        it.launch(1, made, on=(Place(0, "0-1"), Place(1, "2-3")))
        end = it.ended(1)
    (out,) = tmp_path.glob("out.*.out")
    return out.read_text(), f"{end.outcome}: {end.detail}"


def test_srun_succeeds_although_the_job_was_shaped_for_something_else_O13_O40(in_a_job, tmp_path):
    stub_python(tmp_path / "bin", "srun", SRUN)
    made = command(tmp_path, r"""'$(LAUNCHER) sh -c "echo rank \$SLURM_PROCID of job \$SLURM_JOB_ID"'""")
    out, how = run_with_stubs(tmp_path, made)
    assert how == "done: "
    assert sorted(out.splitlines()) == [f"rank {rank} of job 42" for rank in range(4)]


MPIRUN = """#!/bin/sh
# As an MPI that believes Slurm's variables more than its own options.
[ "$1" = --version ] && exec echo "mpirun (Open MPI) 4.1.4"
echo "nodes $SLURM_NODELIST ranks $SLURM_TASKS_PER_NODE"
env | grep -c -e SLURM_NTASKS -e SLURM_CPUS_PER_TASK -e SLURM_MEM -e SLURM_TRES
echo "job $SLURM_JOB_ID"
"""


def test_an_mpirun_that_believes_slurms_variables_sees_the_partition_O12(in_a_job, tmp_path):
    for name in ("mpirun", "mpirun.openmpi"):
        stub_python(tmp_path / "bin", name, MPIRUN)
    out, how = run_with_stubs(tmp_path, command(tmp_path, "$(LAUNCHER) app", "openmpi"))
    assert how == "done: "
    assert out.splitlines() == ["nodes n1,n2 ranks 2(x2)", "0", "job 42"]


def stub_python(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text.format(python=sys.executable) if text.startswith("#!{") else text)
    path.chmod(0o755)
