"""Does a run understand the environment of a batch job? Recorded ones of each system, with clients that answer from a list."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cantle.allocations.batch.flux import Flux
from cantle.allocations.batch.hostlists import counts, expand
from cantle.allocations.batch.job import Host, Job, alike, clock_seconds
from cantle.allocations.batch.lsf import Lsf
from cantle.allocations.batch.pbs import Pbs
from cantle.allocations.batch.sge import Sge
from cantle.allocations.batch.slurm import Slurm, in_a_step
from cantle.allocations.batch.stale import cleaned
from cantle.allocations.batch.systems import job_of
from cantle.cli import submitting
from cantle.cli.inside import around, granted_here
from cantle.cli.main import command_named
from cantle.errors import MachineError

SBATCH = {
    "SLURMD_NODENAME": "node1",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_GTIDS": "0",
    "SLURM_JOBID": "24",
    "SLURM_JOB_CPUS_PER_NODE": "72(x2),36",
    "SLURM_JOB_GPUS": "0",
    "SLURM_JOB_ID": "24",
    "SLURM_JOB_NODELIST": "node[1-2],fat07",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_LOCALID": "0",
    "SLURM_MEM_PER_CPU": "100",
    "SLURM_NODEID": "0",
    "SLURM_NODELIST": "node[1-2],fat07",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_SUBMIT_DIR": "/data",
}
STEP = {
    **SBATCH,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node2",
    "SLURM_STEP_NUM_TASKS": "1",
}


def deaf(words: Sequence[str]) -> str:
    raise AssertionError(f"nothing has to be asked, but {words} was")


def answering(**answers: str) -> Callable[[Sequence[str]], str]:
    """A client for each first word."""
    return lambda words: answers.get(words[0], "")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("node[1-3,7],x[01-03]", ["node1", "node2", "node3", "node7", "x01", "x02", "x03"]),
        ("r[1-2]c[08-10]-ib", [f"r{r}c{c}-ib" for r in (1, 2) for c in ("08", "09", "10")]),
        ("a[098-101]", ["a098", "a099", "a100", "a101"]),
        ("n[5], m", ["n5", "m"]),
        ("", []),
    ],
)
def test_a_compressed_list_of_hosts_is_expanded_without_any_client(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize("text", ["node[1-3", "node]1[", "node[3-1]", "node[a-c]", "node[[1]]", "n[0-99999999]"])
def test_what_is_no_list_of_hosts_is_told_with_the_word(text: str) -> None:
    with pytest.raises(ValueError, match=r"node|n\["):
        expand(text)


def test_compressed_counts_are_expanded() -> None:
    assert counts("72(x2),36") == [72, 72, 36]
    assert counts("") == []
    with pytest.raises(ValueError, match=r"36\(x2\)"):
        counts("72(2)")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5:00", 300),
        ("1-02:03:04", 93784),
        ("2-00", 172800),
        ("90", 90),
        ("UNLIMITED", None),
        ("", None),
        ("1-x", None),
    ],
)
def test_times_of_batch_systems_are_read(text: str, seconds: float | None) -> None:
    assert clock_seconds(text) == seconds


def test_slurm_names_nodes_of_several_sizes() -> None:
    job = Slurm().job(SBATCH, deaf)
    assert job == Job("Slurm", "24", (Host("node1", 72, 7200), Host("node2", 72, 7200), Host("fat07", 36, 3600)))
    assert [len(group) for group in alike(job.hosts)] == [2, 1]


def test_a_heterogeneous_slurm_job_has_the_nodes_of_all_its_components() -> None:
    environ = {
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_ID_HET_GROUP_0": "32",
        "SLURM_JOB_ID_HET_GROUP_1": "33",
        "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "2",
        "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "1(x2)",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "node1",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "node[2-3]",
    }
    job = Slurm().job(environ, deaf)
    assert job is not None
    assert job.number == "32"
    assert job.hosts == (Host("node1", 2, 0, 0), Host("node2", 1, 0, 1), Host("node3", 1, 0, 1))
    one, two = Slurm().starts(job.hosts, job, lambda options: ["run", *options], environ)
    assert "--het-group=0" in one.words
    assert "--nodelist=node1" in one.words
    assert {"--het-group=1", "--nodes=2", "--ntasks=2", "--nodelist=node2,node3"} <= set(two.words)


@pytest.mark.parametrize("size", ["", "x", "-1", "2{"])
def test_a_number_of_components_that_is_none_means_one(size: str) -> None:
    job = Slurm().job({**SBATCH, "SLURM_HET_SIZE": size}, deaf)
    assert job is not None and [host.name for host in job.hosts] == ["node1", "node2", "fat07"]


def test_a_run_in_a_step_keeps_to_the_nodes_of_the_step() -> None:
    job = Slurm().job(STEP, deaf)
    assert job is not None
    assert job.hosts == (Host("node2", 72, 7200),)


def test_a_batch_script_and_an_interactive_shell_are_no_step() -> None:
    assert not in_a_step(SBATCH)
    assert not in_a_step({**SBATCH, "SLURM_STEP_ID": str(0xFFFFFFFA)})  # interactive
    assert not in_a_step({**SBATCH, "SLURM_STEP_ID": str(0xFFFFFFFB)})  # batch
    assert in_a_step(STEP)


def test_the_end_of_a_slurm_job_is_asked_of_squeue_where_no_variable_tells_it() -> None:
    job = Job("Slurm", "24", (Host("node1"),))
    assert Slurm().seconds_left(job, {"SLURM_JOB_END_TIME": "1300"}, deaf, 1000.0) == 300
    assert Slurm().seconds_left(job, {}, answering(squeue="1:02:03\n"), 0.0) == 3723
    assert Slurm().seconds_left(job, {}, answering(squeue="UNLIMITED\n"), 0.0) is None
    assert Slurm().seconds_left(job, {}, answering(), 0.0) is None


def test_o13_the_start_of_runners_states_its_whole_shape(tmp_path: Path) -> None:
    job = Slurm().job(SBATCH, deaf)
    assert job is not None
    starts = Slurm().starts(job.hosts, job, lambda options: ["cantle", *options], SBATCH)
    assert [len(start.hosts) for start in starts] == [2, 1]
    words = starts[0].words
    assert words[0] == "srun"
    assert words[words.index("--jobid") + 1] == "24"
    assert {
        "--nodes=2",
        "--ntasks=2",
        "--ntasks-per-node=1",
        "--nodelist=node1,node2",
        "--overlap",
        "--mem=0",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        "--export=ALL",
    } <= set(words)
    assert words[words.index("cantle") :] == ("cantle", "--memory", "7200MiB", "--granted", "72")
    assert starts[1].words[words.index("cantle") :] == ("cantle", "--memory", "3600MiB", "--granted", "36")


def test_a_start_says_nothing_of_cores_that_slurm_does_not_tell(tmp_path: Path) -> None:
    told_less = {**SBATCH, "SLURM_JOB_CPUS_PER_NODE": "72"}  # three nodes, one number
    job = Slurm().job(told_less, deaf)
    assert job is not None
    (start,) = Slurm().starts(job.hosts, job, lambda options: ["cantle", *options], told_less)
    assert "--granted" not in start.words


def test_o20_a_step_has_less_of_its_node_than_the_job() -> None:
    job = Slurm().job({**STEP, "SLURMD_NODENAME": "node2", "SLURM_CPUS_ON_NODE": "8"}, deaf)
    assert job is not None
    assert job.hosts == (Host("node2", 8, 7200),)
    assert granted_here({**STEP, "SLURMD_NODENAME": "node2", "SLURM_CPUS_ON_NODE": "8"}) == 8
    assert granted_here({**SBATCH, "SLURMD_NODENAME": "fat07"}) == 36
    assert granted_here({**SBATCH, "SLURMD_NODENAME": "login"}) == 0
    assert granted_here({**SBATCH, "SLURM_JOB_CPUS_PER_NODE": "many"}) == 0
    assert granted_here({"PBS_JOBID": "7"}) == 0


def test_o40_what_would_mislead_an_inner_start_is_gone_and_the_job_is_still_known() -> None:
    environ = cleaned(
        {**STEP, "SLURM_TRES_PER_TASK": "cpu:1", "SLURM_CPUS_PER_TASK": "8", "SRUN_CPUS_PER_TASK": "8", "HOME": "/h"}
    )
    assert environ["SLURM_JOB_ID"] == "24"
    assert environ["SLURM_JOB_NODELIST"] == "node[1-2],fat07"
    assert environ["SLURM_SUBMIT_DIR"] == "/data"
    assert environ["HOME"] == "/h"
    for name in (
        "SLURM_MEM_PER_CPU",
        "SLURM_CPUS_PER_TASK",
        "SRUN_CPUS_PER_TASK",
        "SLURM_TRES_PER_TASK",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
        "SLURM_STEP_NODELIST",
        "SLURM_LOCALID",
        "SLURM_GTIDS",
        "SLURM_JOB_GPUS",
        "SLURM_CPUS_ON_NODE",
    ):
        assert name not in environ, name


def test_o40_a_study_that_is_submitted_to_a_pilot_from_inside_a_job_does_not_bring_its_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    for name, value in SBATCH.items():
        monkeypatch.setenv(name, value)
    found = {name for name in submitting._environment() if name.startswith(b"SLURM_")}
    assert b"SLURM_JOB_ID" in found
    assert not found & {b"SLURM_NTASKS", b"SLURM_MEM_PER_CPU", b"SLURM_PROCID"}


def test_o12_an_inner_mpirun_reads_slots_that_are_the_nodes_cores() -> None:
    assert cleaned(SBATCH)["SLURM_TASKS_PER_NODE"] == "72(x2),36"


def test_what_a_launcher_said_of_itself_does_not_reach_tasks_but_the_users_settings_do() -> None:
    by_mpirun = {
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:1",
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_btl": "self,tcp",
        "PMIX_RANK": "0",
        "PMI_FD": "5",
        "MPI_LOCALRANKID": "0",
        "FLUX_TASK_RANK": "0",
        "JSM_NAMESPACE_RANK": "0",
        "I_MPI_FABRICS": "shm",
    }
    assert cleaned(by_mpirun) == {"OMPI_MCA_btl": "self,tcp", "I_MPI_FABRICS": "shm"}
    assert cleaned({"OMPI_MCA_plm": "rsh"}) == {"OMPI_MCA_plm": "rsh"}
    by_slurm = {"SLURM_PMIX_MAPPING_SERV": "(vector,(0,1,4))", "SLURM_PMIXP_ABORT_AGENT_PORT": "40123"}
    assert cleaned({**by_slurm, "SLURM_PMIX_FENCE": "ring"}) == {"SLURM_PMIX_FENCE": "ring"}


QSTAT = """\
Job Id: 7.head
    Job_Name = run
    exec_host = n1/0*4+n2/1*4+n2/2*
\t2
    Resource_List.walltime = 01:00:00
    resources_used.walltime = 00:10:30
"""


def test_pbs_counts_what_the_server_granted_and_not_the_lines_of_the_node_file(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n1.site.org\nn1.site.org\nn2.site.org\n")
    environ = {"PBS_JOBID": "7.head", "PBS_NODEFILE": str(nodes)}
    job = Pbs().job(environ, answering(qstat=QSTAT))
    assert job == Job("PBS", "7.head", (Host("n1.site.org", 4), Host("n2.site.org", 6)))
    assert Pbs().seconds_left(job, environ, answering(qstat=QSTAT), 0.0) == 3600 - 630
    unknown = Pbs().job(environ, answering())
    assert unknown is not None
    assert [host.cores for host in unknown.hosts] == [0, 0]


def test_torque_counts_the_lines_of_the_node_file(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\n" * 3 + "n2\n" * 2)
    job = Pbs().job({"PBS_JOBID": "7", "PBS_NODEFILE": str(nodes), "PBS_NUM_PPN": "3"}, answering())
    assert job is not None
    assert job.hosts == (Host("n1", 3), Host("n2", 2))
    spans = "    exec_host = n1/0-3+n2/0,2-3\n"
    asked = Pbs().job({"PBS_JOBID": "7", "PBS_NODEFILE": str(nodes)}, answering(qstat=spans))
    assert asked is not None
    assert asked.hosts == (Host("n1", 4), Host("n2", 3))


def on_path(folder: Path, *programs: str) -> dict[str, str]:
    """An environment whose PATH has these programs and no others."""
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "PYTHONPATH": "/lib", "SECRET": "x"}


def test_pbs_starts_through_the_task_manager_with_the_environment_that_python_needs(tmp_path: Path) -> None:
    job = Job("PBS", "7", (Host("n1", 4), Host("n2")))
    environ = on_path(tmp_path, "pbsdsh")
    torque = Pbs().starts(job.hosts, job, lambda options: ["run", *options], environ)
    assert [start.words for start in torque] == [
        ("pbsdsh", "-h", "n1", "env", f"PATH={tmp_path}", "PYTHONPATH=/lib", "run", "--name", "n1", "--cores", "4"),
        ("pbsdsh", "-h", "n2", "env", f"PATH={tmp_path}", "PYTHONPATH=/lib", "run", "--name", "n2"),
    ]
    pro = Pbs().starts(job.hosts, job, lambda options: ["run", *options], on_path(tmp_path, "pbs_tmrsh"))
    assert [start.words[:2] for start in pro] == [("pbs_tmrsh", "n1"), ("pbs_tmrsh", "n2")]
    (tmp_path / "none").mkdir()
    (other,) = Pbs().starts(job.hosts, job, lambda options: ["run", *options], on_path(tmp_path / "none"))
    assert other.words[:7] == ("mpiexec", "-n", "2", "-ppn", "1", "-hosts", "n1,n2")
    assert other.hosts == job.hosts


def test_grid_engine_adds_up_the_queues_of_a_host(tmp_path: Path) -> None:
    hosts = tmp_path / "pe"
    hosts.write_text("n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\nn2 1 fast.q@n2 UNDEFINED\n")
    environ = {"JOB_ID": "9", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": str(hosts), "SGE_JOB_SPOOL_DIR": str(tmp_path)}
    job = Sge().job(environ, deaf)
    assert job == Job("SGE", "9", (Host("n1", 4), Host("n2", 3)))
    first, _ = Sge().starts(job.hosts, job, lambda options: ["run", *options], environ)
    assert first.words == ("qrsh", "-inherit", "-nostdin", "-V", "n1", "run", "--name", "n1", "--cores", "4")
    begun = tmp_path.stat().st_ctime
    asked = answering(qstat="hard resource_list:         h_rt=3600,h_vmem=4G\n")
    assert Sge().seconds_left(job, environ, asked, begun + 100) == pytest.approx(3500)
    assert Sge().job({"JOB_ID": "9"}, deaf) is None  # a name that others use as well


def test_lsf_counts_slots_and_prefers_its_own_start(tmp_path: Path) -> None:
    environ = {"LSB_JOBID": "5", "LSB_MCPU_HOSTS": "n1 4 n2 4 n3 2", **on_path(tmp_path)}
    job = Lsf().job(environ, deaf)
    assert job == Job("LSF", "5", (Host("n1", 4), Host("n2", 4), Host("n3", 2)))
    starts = Lsf().starts(job.hosts, job, lambda options: ["run", *options], environ)
    assert [start.words for start in starts] == [
        ("blaunch", "-n", "-z", "n1 n2", "run", "--cores", "4"),
        ("blaunch", "-n", "-z", "n3", "run", "--cores", "2"),
    ]
    assert Lsf().seconds_left(job, environ, answering(bjobs="1:30 L\n"), 0.0) == 5400
    assert Lsf().seconds_left(job, environ, answering(bjobs="1:30 E\n"), 0.0) is None


def test_where_jsrun_is_the_batch_host_does_not_compute(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("batch1\n" + "n1\n" * 42 + "n2\n" * 42)
    environ = {"LSB_JOBID": "5", "LSB_DJOB_HOSTFILE": str(hosts), **on_path(tmp_path, "jsrun")}
    job = Lsf().job(environ, deaf)
    assert job == Job("LSF", "5", (Host("n1", 42), Host("n2", 42)))
    (start,) = Lsf().starts(job.hosts, job, lambda options: ["run", *options], environ)
    assert start.words[:5] == ("jsrun", "--nrs", "2", "--rs_per_host", "1")
    assert start.words[-1] == "run"


def test_flux_is_asked_for_the_hosts_of_the_innermost_instance() -> None:
    environ = {"FLUX_URI": "local:///run/flux", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "other"}

    def flux(words: Sequence[str]) -> str:
        return {"hostlist": "n[1-3]\n", "timeleft": "120.5\n"}[words[-1]]

    found = job_of(environ, flux)
    assert found is not None
    system, job = found
    assert [host.name for host in job.hosts] == ["n1", "n2", "n3"]
    (start,) = system.starts(job.hosts[1:], job, lambda options: ["run", *options], environ)
    assert start.words == ("flux", "exec", "--rank=1,2", "--noinput", "run")
    assert Flux().seconds_left(job, environ, flux, 0.0) == 120.5
    assert Flux().seconds_left(job, environ, lambda _: "inf\n", 0.0) is None


def test_without_the_packages_that_other_nodes_need_it_is_said_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for name, value in SBATCH.items():
        monkeypatch.setenv(name, value)
    words = ["study.yaml"]
    with pytest.raises(MachineError, match=r"cantle\[cluster\].*--this-machine"):
        around(command_named("run").parser().parse_args(words))
    alone = around(command_named("run").parser().parse_args([*words, "--this-machine"]))
    assert alone is not None
    assert alone.sources == []


def test_the_machine_under_us_is_found_among_the_hosts_by_either_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SBATCH, "SLURMD_NODENAME": "fat07"}.items():
        monkeypatch.setenv(name, value)
    inside = around(command_named("run").parser().parse_args(["study.yaml"]))
    assert inside is not None
    assert inside.here
    assert inside.name == "fat07"
    assert inside.granted is not None
    assert (inside.granted.cores, inside.granted.memory_mib) == (0, 3600)  # cores: what we may use says it better
    assert inside.at_most == 36  # unless nothing confines us
    monkeypatch.setenv("SLURMD_NODENAME", "elsewhere")
    outside = around(command_named("run").parser().parse_args(["study.yaml"]))
    assert outside is not None
    assert not outside.here


def test_an_environment_that_contradicts_itself_is_told_with_the_system(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"job of Flux, but FLUX_URI is set"):
        job_of({"FLUX_URI": "local:///gone"}, answering())
    with pytest.raises(ValueError, match=r"job of PBS, but PBS_NODEFILE .* cannot be read"):
        job_of({"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "none")}, answering())
    assert job_of({"HOME": "/h"}, deaf) is None
