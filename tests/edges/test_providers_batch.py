"""Nodes from a batch system, against a small Slurm of our own: what is handed in, asked after, canceled, and found again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from providers_rig import Heard, asked, tended

import fake_slurm
from cantle.allocations.providers.batch import BatchProvider, JobOptions
from cantle.allocations.providers.leftovers import take_back
from cantle.allocations.providers.records import Records
from cantle.allocations.submission.flux import Flux
from cantle.allocations.submission.slurm import Slurm
from cantle.allocations.submission.wanted import Stage
from cantle.errors import MachineError, RequestError
from cantle.model.kinds import Kind
from cantle.model.resources import Node

CPU = Kind("cpu", 2, memory_mib=512, lasts_s=90.0)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small Slurm that is on the PATH; runners there end at once, with what they were told."""
    folder = tmp_path / "slurm"
    monkeypatch.setenv("PATH", f"{fake_slurm.install(folder)}:/usr/bin:/bin")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"; test -e $(dirname $0)/stay && exec sleep 60; exit 3\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{python.parent}:{folder / 'bin'}:/usr/bin:/bin")
    (tmp_path / "letter").write_text("a letter")
    return folder


def commands(slurm: Path, name: str) -> list[list[str]]:
    lines = [json.loads(line) for line in (slurm / "asked").read_text().splitlines()]
    return [words for words in lines if words[0] == name]


def test_each_block_is_a_job_whose_script_starts_runners_that_name_request_and_job(tmp_path: Path, slurm: Path) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(CPU, Slurm(), JobOptions(queue="short", extra=("--mail-type=NONE",))), Heard()
    provider.add(asked(tmp_path, 2, 7), heard)
    words = commands(slurm, "sbatch")
    assert len(words) == 2 == len(heard.instances)
    for option in ("--job-name=cantle-cpu-7-abcd", "--nodes=1", "--cpus-per-task=2", "--time=2", "--mem=512M"):
        assert option in words[0]
    assert {"--partition=short", "--mail-type=NONE", "--no-requeue"} <= set(words[0])
    assert "--no-kill" not in words[0], "with its only node a job has lost all"
    script = (tmp_path / "elastic" / "cantle-cpu-7-abcd.sh").read_text()
    assert f"--connect {tmp_path}/letter" in script
    assert '--request 7:"$SLURM_JOB_ID" --kind cpu --cores 2 --gpus 0 --memory 512MiB --until "$until"' in script
    assert f"test -s {tmp_path}/letter || exit 0" in script
    provider.close()
    assert all(Slurm().look(ident).stage is Stage.OVER for ident in heard.instances)


def test_a_job_that_waits_is_told_with_its_reason_and_one_that_ends_early_with_its_last_words(
    tmp_path: Path, slurm: Path
) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(CPU, Slurm()), Heard()
    provider.add(asked(tmp_path, 1), heard)
    [job] = heard.instances
    tended(provider, lambda: any("pending (Resources)" in detail for detail, _ in heard.details))
    assert not heard.ended
    (slurm / "hold").unlink()
    tended(provider, lambda: bool(heard.ended))
    [(instance, n, why)] = heard.ended
    assert (instance, n) == (job, 1) and "before all of them had joined" in why and "cantle runner" in why
    assert provider.tend() == float("inf"), "nothing is left to look after"


def test_who_has_several_jobs_asks_again_when_the_first_of_them_is_to_be_asked_after(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("cantle.allocations.providers.batch.monotonic", lambda: now[0])
    (slurm / "hold").touch()
    provider, heard = BatchProvider(CPU, Slurm()), Heard()
    provider.add(asked(tmp_path, 1, 7), heard)
    now[0] += 60.0
    pause = provider.tend()
    provider.add(asked(tmp_path, 1, 8), heard)
    assert provider.tend() < pause, "a job that has just been handed in may run at once"
    provider.close()


def test_only_jobs_that_wait_are_withdrawn_and_no_more_than_asked(tmp_path: Path, slurm: Path) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(replace(CPU, block=2), Slurm()), Heard()
    provider.add(asked(tmp_path, 4), heard)
    first, second = heard.instances
    assert all("--no-kill" in words for words in commands(slurm, "sbatch"))
    assert provider.withdraw(0, 1) == 0, "half a job cannot be"
    assert provider.withdraw(0, 3) == 2
    assert Slurm().look(second).stage is Stage.OVER and Slurm().look(first).stage is Stage.PENDING
    provider.close()


def test_what_slurm_refuses_is_refused_in_its_words(tmp_path: Path, slurm: Path) -> None:
    provider = BatchProvider(CPU, Slurm(), JobOptions(queue="nosuch"))
    with pytest.raises(RequestError, match="Invalid partition name"):
        provider.add(asked(tmp_path, 1), Heard())


class _FullDisk(Heard):
    """Takes one job down, and no more."""

    def handed_out(self, request: int, instance: str) -> None:
        if self.instances:
            raise MachineError(f"no space; {instance} is on no record")
        super().handed_out(request, instance)


def test_a_job_that_cannot_be_put_on_record_is_canceled_and_its_nodes_are_refused(tmp_path: Path, slurm: Path) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(CPU, Slurm()), _FullDisk()
    provider.add(asked(tmp_path, 2), heard)
    [(n, why)] = heard.refusals
    job = why.partition("; ")[2].split()[0]
    assert n == 1 and job not in heard.instances
    assert Slurm().look(job).stage is Stage.OVER
    assert Slurm().look(heard.instances[0]).stage is Stage.PENDING
    provider.close()


def test_several_nodes_of_a_job_are_started_by_srun_and_elsewhere_not_at_all(tmp_path: Path, slurm: Path) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(replace(CPU, block=3), Slurm()), Heard()
    provider.add(asked(tmp_path, 3), heard)
    assert len(heard.instances) == 1 and "--nodes=3" in commands(slurm, "sbatch")[0]
    assert "--nodelist=$node" in (tmp_path / "elastic" / "cantle-cpu-0-abcd.sh").read_text()
    provider.close()
    with pytest.raises(RequestError, match="one node of kind cpu at a time"):
        BatchProvider(replace(CPU, block=2), Flux()).add(asked(tmp_path, 2), Heard())


def test_a_node_that_slurm_does_not_take_back_alone_is_told_once(tmp_path: Path, slurm: Path) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(replace(CPU, block=3), Slurm()), Heard()
    provider.add(asked(tmp_path, 3), heard)
    [job] = heard.instances
    heard.there = {job: ["n1", "n2", "n3"]}
    provider.remove(Node("n1", 2), job)
    provider.remove(Node("n2", 2), job)
    [note] = heard.notes
    assert f"job {job} holds it until all of its 3 nodes are given back" in note
    provider.close()


def test_what_a_dead_conductor_left_is_found_by_name_though_nobody_heard_its_number(
    tmp_path: Path, slurm: Path
) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(CPU, Slurm()), Heard()
    provider.add(asked(tmp_path, 1), heard)
    records = Records(tmp_path / "elastic")
    records.asked(0, "cantle-cpu-0-abcd", "cpu", 1, provider.undo)  # and then it died over it
    told: list[str] = []
    assert take_back(tmp_path / "elastic", told.append, lambda name: None) == 1
    assert told == [f"request 0, 1 of kind cpu: job {heard.instances[0]} canceled, left by an earlier conductor"]
    assert Slurm().look(heard.instances[0]).stage is Stage.OVER
    assert not records.left()
    assert take_back(tmp_path / "elastic", told.append, lambda name: None) == 0 and len(told) == 1


def test_when_slurm_cannot_be_asked_what_was_left_stays_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    records = Records(tmp_path / "elastic")
    records.asked(3, "cantle-cpu-3-abcd", "cpu", 2, {"by": "batch", "system": "slurm"})
    told: list[str] = []
    assert take_back(tmp_path / "elastic", told.append, lambda name: None) == 0
    assert "request 3, 2 of kind cpu, may have left something" in told[0] and "squeue" in told[0]
    assert [left.number for left in records.left()] == [3]


def test_the_end_of_a_run_tells_which_jobs_could_not_be_canceled(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm / "hold").touch()
    provider, heard = BatchProvider(CPU, Slurm()), Heard()
    provider.add(asked(tmp_path, 1), heard)
    path = (slurm / "bin" / "scancel").rename(slurm / "scancel")
    (slurm / "bin" / "scancel").write_text("#!/bin/sh\necho 'scancel: error: controller is down' >&2; exit 1\n")
    (slurm / "bin" / "scancel").chmod(0o755)
    with pytest.raises(MachineError, match=r"job 17 cannot be canceled: .*controller is down"):
        provider.close()
    path.rename(slurm / "bin" / "scancel")
    provider.close()
    assert Slurm().look(heard.instances[0]).stage is Stage.OVER


def test_a_job_whose_node_does_not_see_the_directory_is_told_with_that_guess(tmp_path: Path, slurm: Path) -> None:
    provider, heard = BatchProvider(CPU, Slurm()), Heard()
    provider.add(asked(tmp_path, 1), heard)
    [job] = heard.instances
    stop = time.monotonic() + 60
    while Slurm().look(job).stage is not Stage.OVER:
        assert time.monotonic() < stop
        time.sleep(0.05)
    output = tmp_path / "elastic" / "cantle-cpu-0-abcd.out"
    output.unlink()  # as where the node wrote to a directory of its own
    tended(provider, lambda: bool(heard.ended))
    assert heard.ended[0][2].endswith(f"it said nothing, and there is no {output}: its nodes must see this directory")
