"""What programs say that cannot be (numbers, names, values of the wrong sort) is told where they say it, and harms nobody."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cantle

pytestmark = pytest.mark.real
HALF = "a\udc80"
"""A text that no file takes."""


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cantle.Pilot]:
    place = tmp_path_factory.mktemp("odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        with cantle.open(nodes="2x1", directory=place / "run") as pilot:
            yield pilot


@cantle.task
def take(value: object) -> object:
    return value


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": HALF}, r"take: name='a\\udc80' has characters in it that cannot be printed"),
        ({"name": "a\nb"}, "take: name='a\\\\nb' has characters"),
        ({"kind": HALF}, "take: kind="),
        ({"partition": HALF}, "take: partition="),
        ({"resources": {HALF: 1}}, "take: the name of a resource, "),
        ({"resources": {3: 1}}, "take: the name of a resource, 3 is no text"),
        ({"priority": math.nan}, "take: priority=nan is no number"),
        ({"priority": 10**400}, "take: priority=1000"),
        ({"cores": 10**30}, "take: cores=1000000000000000000000000000000 is more than the 1,000,000,000"),
        ({"retries": 10**30}, "take: retries="),
        ({"memory": 10**30}, "take: memory=.* is more than 1,000,000,000 MiB"),
    ],
)
def test_options_that_cannot_be_are_told_and_the_pilot_goes_on(options: Any, said: str, pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RequestError, match=said):
        take.with_options(**options)
    assert pilot.submit(abs, -1).result(60) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"name": 3}, "partition: name=3 is no text"),
        ({"name": HALF}, "partition: name="),
        ({"name": "p", "engine": 3}, "partition p: engine=3 is no text"),
        ({"name": "p", "kind": HALF}, "partition p: kind="),
        ({"name": "p", "near": "abc"}, "partition p: near='abc' is no list of names"),
        ({"name": "p", "near": [3]}, "partition p: in near, 3 is no text"),
        ({"name": "p", "width": 10**30}, "partition p: width="),
        ({"name": "p", "memory": -5}, "partition p: memory=-5 is no whole number from 0 on"),
    ],
)
def test_partitions_that_cannot_be_are_told_and_the_pilot_goes_on(words: Any, said: str, pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RequestError, match=said):
        pilot.partition(**words)
    with pytest.raises(cantle.RequestError, match="scale: kind="):
        pilot.scale(HALF, 1)
    assert pilot.submit(abs, -1).result(60) == 1


def test_an_error_whose_text_no_file_takes_fails_its_call_and_no_node(pilot: cantle.Pilot) -> None:
    def fail() -> None:
        raise ValueError(HALF)

    with pytest.raises(ValueError) as told:
        pilot.submit(fail).result(60)
    assert str(told.value) == HALF
    assert len(pilot.nodes()) == 2
    done = subprocess.run(
        [sys.executable, "-m", "cantle", "explain", str(pilot.directory), "fail-1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert r"ValueError: a\udc80" in done.stdout


def test_an_error_that_cannot_say_what_it_is_fails_its_call_and_no_node(pilot: cantle.Pilot) -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise OSError("not even that")

    def fail() -> None:
        raise Speechless

    with pytest.raises((Speechless, cantle.RemoteError)):
        pilot.submit(fail).result(60)
    assert len(pilot.nodes()) == 2


def test_what_cannot_be_pickled_is_told_with_where_it_stands(pilot: cantle.Pilot) -> None:
    with pytest.raises(TypeError) as told:
        pilot.submit(sum, (n for n in range(3)))
    assert told.value.__notes__ == ["Argument 1, a generator, of sum cannot be pickled."]
    with pytest.raises(TypeError) as told:
        take.submit(value=(n for n in range(3)))
    assert told.value.__notes__ == ["The argument value, a generator, of take cannot be pickled."]
    with pytest.raises(TypeError, match="a call cannot hand in calls to the pilot that it runs on") as told:
        pilot.submit(lambda: pilot.nodes())
    assert "The function lambda cannot be pickled" in told.value.__notes__[0]


def test_who_gathers_waits_no_longer_than_he_says(pilot: cantle.Pilot) -> None:
    slow, quick = pilot.submit(time.sleep, 600), pilot.submit(abs, -1)
    assert quick.result(60) == 1
    with pytest.raises(TimeoutError, match=r"1 of 2 calls are not over after 0\.3 s"):
        cantle.gather([slow, quick], timeout=0.3)
    with pytest.raises(TimeoutError):
        cantle.gather([slow], timeout=0.1, return_exceptions=True)
    slow.cancel()
    late = cantle.task(walltime=0.2)(time.sleep).submit(60)
    [first, second] = cantle.gather([slow, late], timeout=120, return_exceptions=True)
    assert type(first).__name__ == "CancelledError" and isinstance(second, cantle.WalltimeError)
    assert cantle.gather([pilot.submit(abs, -1)], timeout=120) == [1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"nodes": 4}, 'nodes=4 is no text; to deal this machine out write nodes="4x1"'),
        ({"nodes": 0}, "^nodes=0 is no text$"),
        ({"nodes": "zzz"}, "no pilot could be begun: nodes='zzz' is no group of nodes"),
        ({"nodes": "2x1", "cores": 2}, r"nodes= and cores= exclude each other: cores=N is nodes=1xN"),
        (
            {"cores": 0},
            r"^cores=0: then nothing would serve; name hosts=, slurm= or kinds=, or options=\[\"--listen\"\]$",
        ),
        ({"cores": 0, "options": ["--gpus", "1"]}, r"cores=0: then nothing would serve. Name hosts \(hosts=\), or let"),
        ({"hosts": []}, r"^hosts=\[\] names none; leave it out"),
        ({"kinds": {}}, r"^kinds=\{\} names none; leave it out"),
        ({"cores": "2"}, "cores='2' is no whole number from 0 on"),
        ({"cores": 2.0}, "cores=2.0 is no whole number"),
        ({"hosts": 3}, "hosts=3 is no text and no list of texts"),
        ({"name": 3}, "name=3 is no text"),
        ({"name": "a\n"}, r"name='a\\n' cannot be the name of a study"),
        ({"directory": 3}, "directory=3 is no path"),
        ({"options": "--cores 2"}, r"options='--cores 2' is one text: give a list of words, as in \['--cores', '2'\]"),
        ({"options": ["--nix"]}, "no pilot could be begun: there is no option --nix; see `cantle up --help`"),
        ({"options": ["--memroy", "1GB"]}, "there is no option --memroy; did you mean --memory\\?"),
        ({"kinds": {"cpu": 3}}, "no pilot could be begun: kinds=: cpu: must be a mapping"),
        (
            {"kinds": {"cpu": {"core": 1}}},
            "kinds=: cpu.core: is not known here\n.*'cores'\\?\nkinds=: cpu",
        ),
        ({"kinds": "/no/file.yaml"}, "no pilot could be begun: kinds=: cannot read /no/file.yaml"),
        ({"slurm": {"cores": 1, "maxx": 2}}, "no pilot could be begun: slurm=: slurm.maxx: is not known here"),
        (
            {"kinds": {"cpu": {"cores": 1}}, "scaling": "payof"},
            "there is no scaling policy 'payof'; there are .*; did you mean payoff\\?$",
        ),
        ({"kinds": {"cpu": {"cores": 1}}, "scaling": "eta:x"}, "scaling='eta:x': 'x' is no duration"),
        ({"kinds": {"cpu": {"cores": 1}}, "scaling": "no_such:f"}, "scaling='no_such:f': ModuleNotFoundError"),
        ({"kinds": {"cpu": object()}}, "cannot be written down"),
        (
            {"scaling": ["fixed:1"]},
            "scaling='fixed:1': no node can be asked for, as no kinds of node are declared.*: kinds='cpu: ",
        ),
        ({"pilot": "night", "cores": 2}, r"the pilot night has its nodes already: .* \(cores=\)"),
    ],
)
def test_who_opens_a_pilot_with_wrong_words_is_told_which_and_nothing_is_left(
    words: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cantle.RequestError, match=said) as told:
        cantle.open(**words)
    assert "usage:" not in str(told.value)
    said_of_options = re.sub(
        r'options=\["--|no option --\w+; did you mean --|no option --|cantle up --', "", str(told.value)
    )
    assert not re.search(r"(^|\s)--?[a-z]", said_of_options), "a program gives arguments, and no options"
    assert [each.name for each in tmp_path.iterdir() if each.name != "state"] == []


def test_a_directory_whose_name_no_file_takes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    monkeypatch.chdir(os.fsdecode(odd))
    with pytest.raises(cantle.RequestError, match=r"\\udcff is no valid UTF-8: choose another place with directory="):
        cantle.open(cores=1)


def test_the_child_of_a_call_that_forks_has_no_say_in_what_comes_of_it(pilot: cantle.Pilot) -> None:
    def fork(how: str) -> object:
        child = os.fork()
        if child == 0:
            time.sleep(0.05)
            if how == "exits":
                sys.exit(7)
            if how == "raises":
                raise ValueError("the child's")
            return b"child" * (1 << 20)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert [pilot.submit(fork, how).result(60) for how in ("returns", "exits", "raises")] == [0, 7, 1]
    assert cantle.gather([pilot.submit(abs, -n) for n in range(20)]) == [*range(20)]


def test_a_call_begins_in_the_runs_directory_wherever_the_one_before_went(pilot: cantle.Pilot) -> None:
    pilot.submit(os.chdir, "/").result(60)
    assert {pilot.submit(os.getcwd).result(60) for _ in range(4)} == {str(pilot.directory)}


def test_what_a_call_waits_for_is_a_list(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RequestError, match=r"give a list of futures, as in after=\[abs-"):
        take.submit(1, after=pilot.submit(abs, -1))  # type: ignore[arg-type]


def test_in_an_executor_what_a_task_says_of_its_own_calls_goes_first(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RequestError, match="executor: there is no option core="):
        pilot.executor(core=3)  # type: ignore[call-arg]
    executor = pilot.executor(name="theirs", retries=2)
    futures = [executor.submit(each, 1) for each in (take, take.with_options(name="own"), abs)]
    assert [future.result(60) for future in futures] == [1, 1, 1]
    assert [future.name.partition("-")[0] for future in futures] == ["theirs", "own", "theirs"]  # type: ignore[attr-defined]


def test_a_directory_whose_name_no_file_system_takes_is_told(tmp_path: Path) -> None:
    with pytest.raises(cantle.RequestError, match="cannot be looked at: File name too long; choose another directory="):
        cantle.open(cores=1, directory=tmp_path / ("x" * 300))
