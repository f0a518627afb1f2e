"""Jobs of which nobody heard the number are found by name on each batch system. Its commands are stand-ins."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from pwd import getpwuid

import pytest

from cantle.allocations.providers.batch import FindsByName
from cantle.allocations.providers.leftovers import take_back
from cantle.allocations.providers.records import Records
from cantle.allocations.submission.choosing import ALL
from cantle.allocations.submission.flux import Flux
from cantle.allocations.submission.lsf import Lsf
from cantle.allocations.submission.pbs import Pbs
from cantle.allocations.submission.slurm import Slurm
from cantle.allocations.submission.wanted import Stage
from cantle.errors import MachineError

TOKEN = "cantle-cpu-7-abcd"


class Answers:
    """Commands on the PATH that say something else to each line of words, and write down what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder / "asked"

    def say(self, command: str, **answers: tuple[str, str, int]) -> None:
        """`answers`: what is said on both channels, and the exit status, by a word among the arguments; `else_` otherwise."""
        path = self.folder / command
        path.write_text(
            f"#!{sys.executable} -S\nimport json, sys\n"
            f"with open({str(self.asked)!r}, 'a') as file:\n"
            f"    file.write(json.dumps([{command!r}, *sys.argv[1:]]) + chr(10))\n"
            f"answers = {answers!r}\n"
            "otherwise = answers.get('else_', ('', '', 1))\n"
            "out, err, code = next((answers[word] for word in sys.argv[1:] if word in answers), otherwise)\n"
            "sys.stdout.write(out); sys.stderr.write(err); sys.exit(code)\n"
        )
        path.chmod(0o755)

    @property
    def words(self) -> list[list[str]]:
        if not self.asked.exists():
            return []
        return [json.loads(line) for line in self.asked.read_text().splitlines()]


def asked_of(tmp_path: Path, system: str, *jobs: str) -> Records:
    """What stands on record of a request for a node, and of those of its jobs whose numbers were heard."""
    records = Records(tmp_path / "elastic")
    records.asked(7, TOKEN, "cpu", 1, {"by": "batch", "system": system})
    for job in jobs:
        records.handed_out(7, job)
    return records


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Answers(folder)


def path_of(token: str) -> str:
    """As qstat breaks long lines."""
    return f"Job Id: 5.srv\n    Job_Name = {token[:15]}\n    Output_Path = head:/shared/out/.cantle/elas\n\ttic/{token}.out\n"


def test_each_batch_system_finds_jobs_by_name() -> None:
    assert all(isinstance(system(), FindsByName) for system in ALL)


def test_slurm_tells_those_of_the_user(there: Answers) -> None:
    there.say("squeue", else_=("5\n6\n", "", 0))
    assert Slurm().named(TOKEN) == ["5", "6"]
    assert there.words == [["squeue", "--noheader", "--me", f"--name={TOKEN}", "--format=%i"]]


def test_flux_tells_those_that_wait_or_run(there: Answers) -> None:
    there.say("flux", else_=("f2Vb9cK\n", "", 0))
    assert Flux().named(TOKEN) == ["f2Vb9cK"]
    assert there.words == [["flux", "jobs", "--no-header", "--count=0", f"--name={TOKEN}", "--format={id}"]]


@pytest.mark.parametrize("code", [0, 255])
@pytest.mark.parametrize("said", [f"Job <{TOKEN}> is not found\n", "No unfinished job found\n"])
def test_lsf_says_in_two_ways_that_there_is_none(there: Answers, said: str, code: int) -> None:
    there.say("bjobs", else_=("", said, code))
    assert Lsf().named(TOKEN) == []
    there.say("bjobs", else_=("11\n12\n11\n", "", 0))
    assert Lsf().named(TOKEN) == ["11", "12"], "each element of an array has the number of its job"
    assert there.words[-1] == ["bjobs", "-noheader", "-o", "jobid", "-J", TOKEN]


def test_pbs_keeps_fifteen_letters_of_a_name_and_the_output_tells_whose_job_it_is(there: Answers) -> None:
    there.say("qselect", else_=("5.srv\n6.srv\n7.srv\n", "", 0))
    gone = ("", "qstat: Unknown Job Id 7.srv\n", 153)
    there.say(
        "qstat", **{"5.srv": (path_of(TOKEN), "", 0), "6.srv": (path_of("cantle-cpu-7-abzz"), "", 0), "7.srv": gone}
    )
    assert Pbs().named(TOKEN) == ["5.srv"]
    assert there.words[0] == ["qselect", "-u", getpwuid(os.getuid()).pw_name, "-N", "cantle-cpu-7-ab"]
    before = len(there.words)
    assert Pbs().named("cantle-c-7-abcd") == ["5.srv", "6.srv", "7.srv"], "a name that PBS has in full"
    assert len(there.words) == before + 1


@pytest.mark.parametrize(
    ("system", "command", "called"), [(Flux(), "flux", "Flux"), (Lsf(), "bjobs", "LSF"), (Pbs(), "qselect", "PBS")]
)
def test_who_cannot_be_asked_is_an_error_and_not_none(
    there: Answers, system: FindsByName, command: str, called: str
) -> None:
    with pytest.raises(
        MachineError, match=rf"{called} does not tell which jobs are called {TOKEN}: there is no command"
    ):
        system.named(TOKEN)
    there.say(command, else_=("", "the server is down\n", 1))
    with pytest.raises(MachineError, match="the server is down"):
        system.named(TOKEN)


def test_pbs_that_stops_to_answer_in_between_is_an_error_too(there: Answers) -> None:
    there.say("qselect", else_=("5.srv\n", "", 0))
    there.say("qstat", else_=("", "Connection refused\n", 255))
    with pytest.raises(MachineError, match=r"where its job 5\.srv writes to: Connection refused"):
        Pbs().named(TOKEN)


@pytest.mark.parametrize(
    ("system", "lists", "cancels"),
    [("lsf", "bjobs", ["bkill", "9"]), ("flux", "flux", ["flux", "cancel", "9"]), ("pbs", "qselect", ["qdel", "9"])],
)
def test_what_a_dead_conductor_left_is_canceled_though_nobody_heard_its_number(
    there: Answers, tmp_path: Path, system: str, lists: str, cancels: list[str]
) -> None:
    there.say(lists, else_=("9\n", "", 0))
    if cancels[0] != lists:
        there.say(cancels[0], else_=("", "", 0))
    there.say("qstat", else_=(path_of(TOKEN), "", 0))
    records = asked_of(tmp_path, system)
    told: list[str] = []
    assert take_back(tmp_path / "elastic", told.append, lambda name: None) == 1
    assert told == ["request 7, 1 of kind cpu: job 9 canceled, left by an earlier conductor"]
    assert cancels in there.words
    assert records.left() == []


def test_names_are_asked_for_before_anything_is_canceled_so_that_what_was_there_can_be_told(
    there: Answers, tmp_path: Path
) -> None:
    there.say("bjobs", else_=("9\n", "", 0))
    there.say("bkill", else_=("", "", 0))
    asked_of(tmp_path, "lsf", "9")
    told: list[str] = []
    assert take_back(tmp_path / "elastic", told.append, lambda name: None) == 1
    assert [words[0] for words in there.words] == ["bjobs", "bkill"]
    assert told == ["request 7, 1 of kind cpu: job 9 canceled, left by an earlier conductor"]


def test_known_jobs_are_canceled_even_where_names_cannot_be_asked_for_and_the_rest_stays_on_record(
    there: Answers, tmp_path: Path
) -> None:
    there.say("bjobs", else_=("", "batch daemon not responding\n", 255))
    there.say("bkill", else_=("", "", 0))
    records = asked_of(tmp_path, "lsf", "9")
    told: list[str] = []
    assert take_back(tmp_path / "elastic", told.append, lambda name: None) == 0
    assert ["bkill", "9"] in there.words
    assert "may have left something" in told[0] and "not responding" in told[0]
    assert [left.number for left in records.left()] == [7]


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ("RUN|-|-\n", Stage.RUNNING),
        ("PEND|-|Job is waiting;\n", Stage.PENDING),
        ("PEND|", Stage.PENDING),
        ("EXIT|TERM_OWNER: job killed by owner\n", Stage.OVER),
        ("|", Stage.RUNNING),
    ],
)
def test_lsf_may_leave_fields_out(there: Answers, said: str, stage: Stage) -> None:
    there.say("bjobs", else_=(said, "", 0))
    assert Lsf().look("9").stage is stage
