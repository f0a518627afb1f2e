"""Nodes by functions and commands of the user's, which raise, hang, lie and come back late; each is told by its name."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from providers_rig import Heard, asked, tended

from cantle.allocations.providers.base import Asked
from cantle.allocations.providers.custom import Commands, CustomProvider
from cantle.allocations.providers.leftovers import take_back
from cantle.allocations.providers.records import Records
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.resources import Node
from cantle.testing import check_provider

CPU = Kind("cpu", 2)


class Cloud:
    """Functions that keep a list of machines."""

    def __init__(self) -> None:
        self.machines: list[str] = []
        self.asked: list[tuple[str, int, str]] = []
        self.made = 0

    def add(self, kind: str, n: int, letter: str) -> list[str]:
        self.asked.append((kind, n, letter))
        new = [f"m{self.made + i}" for i in range(n)]
        self.made += n
        self.machines += new
        return new

    def remove(self, name: str) -> None:
        self.machines.remove(name)


class Here:
    """Calls functions in this process, in place of one of their own."""

    name = "mine:add"

    def __init__(self, add: Callable[..., Any], remove: Callable[..., Any] | None) -> None:
        self._add, self._remove = add, remove

    def add(self, asked: Asked, kind: str) -> Any:
        return self._add(kind, asked.count, asked.invitation.file if asked.invitation else "")

    def remove(self, instance: str) -> None:
        assert self._remove is not None
        self._remove(instance)

    def given_up(self) -> str:
        return " (mine.py, line 7)"

    def close(self) -> None:
        pass


def provider(add: Callable[..., Any], remove: Callable[..., Any] | None, **more: Any) -> CustomProvider:
    return CustomProvider(CPU, Here(add, remove), removes=remove is not None, **more)


def test_functions_are_told_kind_number_and_letter_and_machines_go_by_their_names(tmp_path: Path) -> None:
    cloud, heard = Cloud(), Heard()
    mine = provider(cloud.add, cloud.remove)
    mine.add(asked(tmp_path, 2), heard)
    assert cloud.asked == [("cpu", 2, str(tmp_path / "letter"))]
    assert heard.instances == ["m0", "m1"]
    mine.remove(Node("n", 2), "m0")
    assert cloud.machines == ["m1"]
    with pytest.raises(MachineError, match="cantle runner --name"):
        mine.remove(Node("n", 2), "")
    mine.close()
    assert cloud.machines == [], "the end of the run takes back the rest"


def _raises(*_: object) -> list[str]:
    raise ValueError("no credit left")


def _exits(*_: object) -> list[str]:
    sys.exit("gone")


@pytest.mark.parametrize(
    ("add", "words"),
    [
        (_raises, "mine:add: add: ValueError: no credit left"),
        (_exits, "mine:add: add: SystemExit: gone"),
        (lambda *_: None, "gave back None, and not a list of names"),
        (lambda *_: "m1", "gave back 'm1', and not a list of names"),
        (lambda *_: ["m1", 7], "gave back 7 among the names"),
        (lambda *_: ["m1", "m1"], "gave back the same name twice"),
    ],
)
def test_a_function_that_raises_or_gives_back_nonsense_is_told_by_name(
    tmp_path: Path, add: Callable[..., Any], words: str
) -> None:
    with pytest.raises(MachineError) as told:
        provider(add, None).add(asked(tmp_path, 2), Heard())
    assert words in str(told.value)


def test_fewer_machines_than_asked_for_are_a_refusal_of_the_rest(tmp_path: Path) -> None:
    heard = Heard()
    provider(lambda *_: ["m1"], lambda _: None).add(asked(tmp_path, 3), heard)
    assert heard.refusals == [(2, "mine:add has named 1 machine where 3 were asked for")]
    provider(lambda *_: [], lambda _: None).add(asked(tmp_path, 1), heard)
    assert heard.refusals[1:] == [(1, "mine:add has named 0 machines where 1 was asked for")]


def test_more_machines_than_asked_for_are_removed_again(tmp_path: Path) -> None:
    heard, removed = Heard(), []
    provider(lambda *_: [f"m{n}" for n in range(1000)], removed.append).add(asked(tmp_path, 2), heard)
    assert len(removed) == 998 and "m0" not in removed and "m1" not in removed
    assert "has begun 1,000 machines where 2 were asked for" in heard.notes[0]


class _FullDisk(Heard):
    """Takes one machine down, and no more."""

    def handed_out(self, request: int, instance: str) -> None:
        if self.instances:
            raise MachineError(f"cannot write 0.json: no space; {instance} is on no record")
        super().handed_out(request, instance)


def test_where_a_machine_cannot_be_put_on_record_none_of_the_request_is_left(tmp_path: Path) -> None:
    cloud = Cloud()
    mine = provider(cloud.add, cloud.remove)
    with pytest.raises(MachineError, match="m1 is on no record"):
        mine.add(asked(tmp_path, 4), _FullDisk())
    assert cloud.made == 4
    assert cloud.machines == []
    mine.close()


def test_a_function_that_hangs_is_given_up_and_what_it_brings_too_late_is_removed(tmp_path: Path) -> None:
    come, heard, removed = threading.Event(), Heard(), []

    def add(*_: object) -> list[str]:
        come.wait(200)
        return ["late"]

    mine = provider(add, removed.append, patience_s=0.2)
    begun = time.monotonic()
    with pytest.raises(MachineError, match=r"mine:add: add has not come back within 0.2 s \(mine.py, line 7\)"):
        mine.add(asked(tmp_path, 1), heard)
    assert time.monotonic() - begun < 100
    come.set()
    tended(mine, lambda: removed == ["late"])


def test_a_machine_that_does_not_join_in_time_is_removed_and_does_not_count(tmp_path: Path) -> None:
    heard, removed = Heard(), []
    mine = provider(lambda *_: ["m1", "m2"], removed.append, joins_s=0.2)
    mine.add(asked(tmp_path, 2), heard)
    heard.there = {"m2": ["m2"]}
    tended(mine, lambda: removed == ["m1"])
    assert heard.ended == [("m1", 1, "m1 has not joined within 0.2 s")]


def test_a_machine_whose_node_is_lost_is_removed_at_once(tmp_path: Path) -> None:
    cloud, heard = Cloud(), Heard()
    mine = provider(cloud.add, cloud.remove)
    mine.add(asked(tmp_path, 2), heard)
    mine.lost("m0")
    mine.lost("m0")
    assert cloud.machines == ["m1"] and not heard.notes
    stubborn = provider(lambda *_: ["m1"], _raises)
    stubborn.add(asked(tmp_path, 1), heard)
    stubborn.lost("m1")
    assert heard.notes == ["mine:add: remove m1: ValueError: no credit left"]


def test_a_machine_that_cannot_be_removed_is_told_at_the_end_and_in_between(tmp_path: Path) -> None:
    mine = provider(lambda *_: ["m1"], _raises)
    mine.add(asked(tmp_path, 1), Heard())
    with pytest.raises(MachineError, match="remove m1: ValueError: no credit left"):
        mine.remove(Node("m1", 2), "m1")
    with pytest.raises(MachineError, match="remove m1"):
        mine.close()


def test_where_nobody_said_how_to_remove_nodes_stay_and_that_is_told(tmp_path: Path) -> None:
    mine = provider(lambda *_: ["m1"], None)
    assert mine.kind.adds and not mine.kind.removes
    mine.add(asked(tmp_path, 1), Heard())
    assert mine.withdraw(0, 1) == 0
    with pytest.raises(MachineError, match="nobody has said how to end these machines: m1"):
        mine.close()


def test_only_machines_that_have_not_joined_are_withdrawn(tmp_path: Path) -> None:
    cloud, heard = Cloud(), Heard()
    mine = provider(cloud.add, cloud.remove)
    mine.add(asked(tmp_path, 3), heard)
    heard.there = {"m2": ["m2"]}
    assert mine.withdraw(0, 5) == 2
    assert cloud.machines == ["m2"]


@pytest.fixture
def commands(tmp_path: Path) -> tuple[str, str]:
    """Two commands that keep a folder of machines."""
    add, remove = tmp_path / "grow", tmp_path / "shrink"
    add.write_text(
        "#!/bin/sh\nmkdir -p $(dirname $0)/there\n"
        'for n in $(seq $2); do touch $(dirname $0)/there/$CANTLE_TOKEN-$n; echo "$CANTLE_TOKEN-$n"; done\n'
        'echo "$CANTLE_RUNNER" > $(dirname $0)/runner; echo "$@" > $(dirname $0)/words\n'
    )
    remove.write_text("#!/bin/sh\nrm $(dirname $0)/there/$1\n")
    for script in (add, remove):
        script.chmod(0o755)
    return str(add), str(remove)


def there(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "there").iterdir())


def test_commands_print_names_and_find_all_they_need_in_words_and_environment(
    tmp_path: Path, commands: tuple[str, str]
) -> None:
    heard = Heard()
    mine = CustomProvider(CPU, Commands(*commands))
    mine.add(asked(tmp_path, 2), heard)
    assert heard.instances == ["cantle-cpu-0-abcd-1", "cantle-cpu-0-abcd-2"] == there(tmp_path)
    assert (tmp_path / "words").read_text().split() == ["cpu", "2", str(tmp_path / "letter")]
    runner = (tmp_path / "runner").read_text()
    assert f"-m cantle runner --connect {tmp_path}/letter" in runner and "--request 0: --kind cpu" in runner
    mine.close()
    assert there(tmp_path) == []


def test_what_a_command_prints_beside_names_takes_no_machine_s_place(tmp_path: Path) -> None:
    heard, noisy = Heard(), "sh -c 'echo Starting a machine ...; echo m1; head -c 300 /dev/zero | tr \\\\0 x'"
    CustomProvider(CPU, Commands(noisy, "true")).add(asked(tmp_path, 1), heard)
    assert heard.instances == ["m1"] and heard.refusals == []
    assert "has printed 'Starting a machine ...', which is taken for no machine's name" in heard.notes[0]


@pytest.mark.parametrize(
    ("words", "within_s", "told"),
    [
        ("/nowhere/grow", 60.0, "/nowhere/grow cannot be started"),
        ("sh -c 'echo quota exceeded >&2; exit 7'", 60.0, "exit status 7: quota exceeded"),
        ("sh -c 'sleep 60; echo m1'", 0.3, "was ended, since it had not come back within 0.3 s"),
    ],
)
def test_a_command_that_fails_or_hangs_is_told_with_its_words(
    tmp_path: Path, words: str, within_s: float, told: str
) -> None:
    mine = CustomProvider(CPU, Commands(words, "true", within_s), patience_s=120)
    with pytest.raises(MachineError) as problem:
        mine.add(asked(tmp_path, 1), Heard())
    assert told in str(problem.value)


def test_machines_of_a_dead_conductor_are_removed_by_the_command_that_stands_on_record(
    tmp_path: Path, commands: tuple[str, str]
) -> None:
    heard, folder = Heard(), tmp_path / "elastic"
    mine = CustomProvider(CPU, Commands(*commands), {"by": "command", "remove": commands[1]})
    records = Records(folder)
    records.asked(0, "cantle-cpu-0-abcd", "cpu", 2, mine.undo)
    mine.add(asked(tmp_path, 2), heard)
    for name in heard.instances:
        records.handed_out(0, name)
    records.answered(0)
    told: list[str] = []
    assert take_back(folder, told.append, lambda name: None) == 1
    assert there(tmp_path) == [] and "cantle-cpu-0-abcd-1, cantle-cpu-0-abcd-2 removed, left by" in told[0]
    assert not records.left()


@pytest.fixture
def by_token(tmp_path: Path) -> str:
    """A command that removes the machine of that name, or all whose names begin with that token."""
    script = tmp_path / "remove"
    script.write_text(
        f'#!/bin/sh\necho "$1" >> {tmp_path}/removed\nrm -f {tmp_path}/there/"$1" {tmp_path}/there/"$1"-*\n'
    )
    script.chmod(0o755)
    return str(script)


def test_machines_of_an_add_within_which_the_conductor_was_killed_are_removed_by_their_token(
    tmp_path: Path, by_token: str
) -> None:
    machines = tmp_path / "there"
    machines.mkdir()
    for name in ("cantle-cpu-1-ab-1", "cantle-cpu-1-ab-2", "cantle-cpu-10-ab-1", "other"):
        (machines / name).touch()
    records = Records(tmp_path / "elastic")
    undo = {"by": "command", "remove": by_token}
    records.asked(1, "cantle-cpu-1-ab", "cpu", 2, undo)
    records.asked(2, "cantle-cpu-2-ab", "cpu", 1, undo)
    records.answered(2)
    told: list[str] = []
    assert take_back(records.folder, told.append, lambda name: None) == 2
    assert sorted(path.name for path in machines.iterdir()) == ["cantle-cpu-10-ab-1", "other"]
    assert told == [
        "request 1, 2 of kind cpu: what has a name that begins with cantle-cpu-1-ab removed, left by an earlier conductor"
    ]
    assert (tmp_path / "removed").read_text() == "cantle-cpu-1-ab\n", "of the other all is known"
    assert not records.left()


def test_a_command_that_does_not_know_the_token_is_asked_once_and_the_user_is_told_what_to_look_for(
    tmp_path: Path,
) -> None:
    records = Records(tmp_path / "elastic")
    records.asked(1, "cantle-cpu-1-ab", "cpu", 2, {"by": "command", "remove": "sh -c 'echo no such machine; exit 1'"})
    records.asked(2, "cantle-cpu-2-ab", "cpu", 1, {"by": "function", "remove": "mine:remove"})
    told: list[str] = []
    assert take_back(records.folder, told.append, lambda name: print) == 2
    assert "something whose name begins with cantle-cpu-1-ab, if `add` had begun it when it was cut off" in told[0]
    assert "failed (exit status 1: no such machine), so look yourself" in told[0]
    assert "something that is on no record, if `add` had begun it when it was cut off" in told[1]
    assert not records.left()


def test_machines_of_an_add_that_was_ended_since_it_took_too_long_are_removed_by_their_token(
    tmp_path: Path, by_token: str
) -> None:
    (tmp_path / "there").mkdir()
    add = f"sh -c 'touch {tmp_path}/there/$CANTLE_TOKEN-1; exec sleep 60'"
    mine = CustomProvider(CPU, Commands(add, by_token, 1.0), patience_s=120)
    with pytest.raises(MachineError, match=r"since it had not come back within 1 s$"):
        mine.add(asked(tmp_path, 1), Heard())
    assert (tmp_path / "removed").exists() and not list((tmp_path / "there").iterdir())
    mine = CustomProvider(CPU, Commands(add, "false", 1.0), patience_s=120)
    with pytest.raises(
        MachineError, match=r"and `remove cantle-.*`, which shall end what it had begun, failed: exit status 1"
    ):
        mine.add(asked(tmp_path, 1), Heard())


def test_machines_of_functions_are_removed_by_name_and_what_fails_stays_on_record(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.machines = ["m1"]
    records = Records(tmp_path / "elastic")
    records.asked(4, "token", "cpu", 2, {"by": "function", "remove": "mine:remove"})
    records.handed_out(4, "m1")
    told: list[str] = []
    assert take_back(records.folder, told.append, lambda name: _raises) == 0
    assert "ValueError: no credit left" in told[0] and records.left()
    assert take_back(records.folder, told.append, {"mine:remove": cloud.remove}.__getitem__) == 1
    assert not cloud.machines and not records.left()


def test_functions_keep_the_promises_of_a_provider(tmp_path: Path) -> None:
    cloud = Cloud()
    check_provider(lambda: provider(cloud.add, cloud.remove), tmp_path)
    assert cloud.made == 2 and cloud.machines == []
    check_provider(lambda: provider(_raises, None), tmp_path)
