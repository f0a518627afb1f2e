"""What is said about kinds of node and who brings them; what is wrong is told with its place."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from cantle.allocations.providers.batch import JobOptions
from cantle.allocations.providers.declared import Declared
from cantle.cli.elastic import kinds_asked
from cantle.errors import CantleError, RequestError, StudyError
from cantle.model.kinds import Kind
from cantle.readers.base import ReadOptions
from cantle.readers.kinds import elasticity_in, kinds_in, kinds_in_words
from cantle.readers.maestro import MaestroReader

TEXT = """\
cantle:
  kinds:
    cpu: {cores: 64, max: 20, starts_in: 90 s, cost: 2, provider: slurm, queue: short, lasts: 4 h, args: [--mail-type=NONE]}
    gpu: {cores: 16, gpus: 4, memory: 64 GiB, min: 1, max: 4, block: 2, stays: 5 min, provider: batch, whole_nodes: true}
    lab: {cores: 8, hosts: "server[1-2] me@other"}
    cloud: {cores: 8, add: ./grow, remove: ./shrink, timeout: 2 min, joins_within: 20 min, resources: {licence: 2}}
    mine: {cores: 1, provider: "here:Mine"}
    here: {cores: 1, provider: local, after: 1.5}
    iron: {cores: 96}
"""


def test_each_key_finds_its_place() -> None:
    slurm = JobOptions(queue="short", extra=("--mail-type=NONE",))
    assert kinds_in(TEXT, "study.yaml") == (
        Declared(
            Kind("cpu", 64, most=20, starts_in_s=90, cost=2, lasts_s=14400, provider="slurm"), "batch", "slurm", slurm
        ),
        Declared(
            Kind("gpu", 16, 4, 65536, least=1, most=4, block=2, stays_s=300, provider="batch"),
            "batch",
            job=JobOptions(whole_nodes=True),
        ),
        Declared(Kind("lab", 8, provider="hosts"), "hosts", hosts=("server[1-2]", "me@other")),
        Declared(
            Kind("cloud", 8, named=(("licence", 2),), provider="own"),
            "own",
            add="./grow",
            remove="./shrink",
            patience_s=120,
            joins_s=1200,
        ),
        Declared(Kind("mine", 1, provider="here:Mine"), "plugin", "here:Mine"),
        Declared(Kind("here", 1, provider="local"), "local", after_s=1.5),
        Declared(Kind("iron", 96, provider="nobody"), "nobody"),
    )


def test_a_text_may_leave_out_what_stands_around_the_kinds() -> None:
    [kind] = kinds_in_words("cpu: {cores: 4, provider: local}")
    assert kinds_in_words(f"cpu: {{cores: 4, provider: local}}{' ' * 400}") == (kind,), "longer than any file's name"
    assert kind == Declared(Kind("cpu", 4, provider="local"), "local")
    assert kinds_in_words("kinds: {cpu: {cores: 4, provider: local}}") == (kind,)
    assert kinds_in_words('{"cpu": {"cores": 4, "provider": "local"}}') == (kind,)


@pytest.mark.parametrize(
    ("said", "commands"),
    [
        ("[module load gcc, 'export A=\"b c\"']", ("module load gcc", 'export A="b c"')),
        ("'. /site/env && cd /tmp'", (". /site/env && cd /tmp",)),
        ("[]", ()),
    ],
)
def test_commands_of_a_set_up_stay_as_they_are_written(said: str, commands: tuple[str, ...]) -> None:
    (kind,) = kinds_in_words(f"cpu: {{cores: 4, provider: slurm, setup: {said}}}")
    assert kind.job.setup == commands


def test_a_file_is_read_and_one_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "kinds.yaml").write_text(TEXT)
    assert len(kinds_in_words(str(tmp_path / "kinds.yaml"))) == 7
    with pytest.raises(RequestError, match=r"cannot read .*nothing\.yaml.*No such file"):
        kinds_in_words(str(tmp_path / "nothing.yaml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpu: {provider: local}", "kinds.cpu.cores: is missing"),
        ("cpu: {cores: 0}", "kinds.cpu.cores: must be a whole number, 1 or more, not 0"),
        ("cpu: {cores: 1, max: 2, min: 3}", "kinds.cpu.min: 3 is more than max, 2"),
        ("cpu: {cores: 1, starts_in: soon}", "kinds.cpu.starts_in: must be a duration as in '90 s' or '4 h', not soon"),
        ("cpu: {cores: 1, cost: -1}", "kinds.cpu.cost: must be a number, 0 or more, not -1"),
        ("cpu: {cores: 1, provider: slrum}", "kinds.cpu.provider: 'slrum' is no provider\n    did you mean 'slurm'?"),
        ("cpu: {cores: 1, provder: local}", "kinds.cpu.provder: is not known here\n    did you mean 'provider'?"),
        (
            "cpu: {cores: 1, provider: local, queue: short}",
            "kinds.cpu.queue: means nothing to the provider of this kind",
        ),
        ("cpu: {cores: 1, queue: short}", "say which: provider: slurm"),
        ("cpu: {cores: 1, provider: ssh}", "kinds.cpu.hosts: is missing"),
        ("cpu: {cores: 1, provider: own}", "kinds.cpu.add: is missing"),
        ("cpu: {cores: 1, hosts: 'a:b:c'}", "kinds.cpu.hosts: a:b:c: 'c' is not a number of cores"),
        ("cpu: {cores: 1, hosts: '4'}", "a number stands for cores of this machine"),
        ("a b: {cores: 1}", "cannot be the name of a kind"),
        ("cpu: 4", "kinds.cpu: must be a mapping, not a number"),
        ("kinds: {}", "there is no kind"),
        ("cpu: {cores: 1000000000}", "kinds.cpu.cores: 1,000,000,000 are more than the 100,000 that there can be"),
        ("cpu: {cores: 1, min: 1000000000}", "kinds.cpu.min: 1,000,000,000 are more than the 100,000 that"),
        ("cpu: {cores: 1, provider: slurm, setup: [[a]]}", "kinds.cpu.setup: must list commands, each of them text"),
        ("cpu: {cores: 1, provider: slurm, setup: {a: 1}}", "kinds.cpu.setup: must be text, not"),
        ("cpu: {cores: 1, provider: local, setup: x}", "kinds.cpu.setup: means nothing to the provider of this kind"),
        (
            "cpu: {cores: 1, max: 5000, provider: local}",
            "kinds.cpu.max: 5,000 are more than the 1,000 into which one machine",
        ),
        (
            "cpu: {cores: 1, max: 3, block: 5}",
            "kinds.cpu.block: 5 at a time are more than max, 3: none could ever come",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_what_would_help(text: str, words: str) -> None:
    with pytest.raises(StudyError) as told:
        kinds_in(text, "--kinds")
    assert words in str(told.value)


@pytest.mark.parametrize(("word", "told"), [("{}", "there is no kind"), (" ", "names no file, and no kind")])
def test_words_with_nothing_in_them_are_taken_for_no_file(word: str, told: str) -> None:
    with pytest.raises(CantleError, match=told):
        kinds_in_words(word)


STUDY = """\
description: {name: grows, description: with kinds}
cantle:
  kinds:
    small: {cores: 1, max: 2, provider: local}
  scaling: [demand, idle=1s]
study:
  - {name: one, description: one, run: {cmd: "true"}}
"""


def test_a_study_declares_kinds_and_says_how_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "grows.yaml"
    file.write_text(STUDY)
    kinds, words = elasticity_in(file)
    assert [(each.kind.name, each.kind.most, each.by) for each in kinds] == [("small", 2, "local")]
    assert words == ("demand", "idle=1s")
    plain = tmp_path / "plain.yaml"
    plain.write_text(STUDY.replace("cantle:", "other:"))
    assert elasticity_in(plain) == ((), ())


@pytest.mark.parametrize(
    ("good", "bad", "key"),
    [("cores: 1", "cores: none", "cantle.kinds.small.cores"), ("idle=1s", "[x]", "cantle.scaling[1]")],
)
def test_what_is_wrong_with_them_is_told_when_the_study_is_read(good: str, bad: str, key: str, tmp_path: Path) -> None:
    file = tmp_path / "grows.yaml"
    file.write_text(STUDY.replace(good, bad))
    with pytest.raises(StudyError) as told:
        MaestroReader().read(file, ReadOptions())
    assert [problem.key for problem in told.value.problems] == [key]
    with pytest.raises(StudyError):
        elasticity_in(file)


def test_what_options_say_takes_the_place_of_the_studys_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "grows.yaml"
    file.write_text(STUDY)

    def asked(kinds: str | None, scaling: list[str]) -> tuple[list[str], list[str]]:
        options = Namespace(kinds=kinds, scaling=scaling, study_file=file)
        return [each.kind.name for each in kinds_asked(options)], options.scaling

    assert asked(None, []) == (["small"], ["demand", "idle=1s"])
    assert asked("large: {cores: 8, provider: local}", []) == (["large"], ["demand", "idle=1s"])
    assert asked(None, ["fixed:2"]) == (["small"], ["fixed:2"])
