"""Runners on hosts, started through a stand-in for ssh: what is sent there, and what is told when it does not go well."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_rig import Rig, Told, until

from cantle.allocations.hosts import source as hosts_source
from cantle.allocations.hosts.host import Host
from cantle.allocations.hosts.source import HostsSource
from cantle.errors import RequestError


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    monkeypatch.setenv("RIG", str(tmp_path))
    yield rig


class Started:
    """A source at work."""

    def __init__(self, rig: Rig, *hosts: Host, **options: object) -> None:
        self.rig = rig
        self.told = Told()
        options.setdefault("again_s", (0.05, 0.05))
        self.source = HostsSource(hosts, ssh=(rig.ssh,), environ=rig.environ, **options)
        self.source.start(rig.invitation(), self.told)

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def has_joined(self, *names: str) -> None:
        until(lambda: all(self.rig.exists(f"{name}.argv") for name in names) or bool(self.told.failures))
        assert not self.told.failures

    def why(self) -> str:
        until(lambda: bool(self.told.failures))
        return self.told.failures[0]


def host(name: str, **known: object) -> Host:
    return Host(name=name, address=name, **known)


def test_a_host_is_reached_by_ssh_and_its_runner_gets_the_invitation_over_stdin(rig):
    with Started(
        rig, host("one", cores=4, gpus=2, memory_mib=512, kind="fat", machine="rack", named=(("tape", 1),))
    ) as it:
        it.has_joined("one")
        assert it.told.expected == 1
        assert rig.text("one.letter") == "a letter"
        assert rig.text("one.argv").rstrip() == (
            "-m cantle runner --connect - --expected 0 --name one --cores 4 --gpus 2 --memory 512MiB --kind fat "
            "--machine rack --resource tape=1"
        )
        log = rig.text("ssh.log")
        assert "BatchMode=yes" in log and "ConnectTimeout" in log and "ServerAliveInterval" in log
        assert log.rstrip().endswith("-- one exec /bin/sh -s")
        assert "a letter" not in log


def test_a_host_of_which_no_numbers_are_known_is_not_told_any(rig):
    with Started(rig, host("one")) as it:
        it.has_joined("one")
        assert rig.text("one.argv").rstrip() == "-m cantle runner --connect - --expected 0 --name one"


def test_the_life_line_of_a_runner_ends_with_its_source(rig):
    with Started(rig, host("one")) as it:
        it.has_joined("one")
        assert not rig.exists("one.over")
    until(lambda: rig.exists("one.over"))
    assert not it.told.failures


def test_all_hosts_are_started_at_once_and_a_bad_one_costs_nobody_else(rig):
    names = [f"h{number}" for number in range(20)]
    with Started(rig, *map(host, names), host("silent")) as it:
        it.has_joined(*names)
        assert it.told.expected == 21


def test_a_host_whose_login_scripts_talk_a_lot_is_understood(rig):
    with Started(rig, host("chatty", setup=("export X=1", "printf 'no end either'"))) as it:
        it.has_joined("chatty")
        assert rig.env("chatty")["X"] == "1"
        assert rig.text("chatty.letter") == "a letter"


def test_no_more_hosts_are_connected_to_at_a_time_than_is_good_for_this_machine(rig, monkeypatch):
    monkeypatch.setattr("cantle.allocations.hosts.source.AT_ONCE", 3)
    names = [f"slow{number}" for number in range(9)]
    with Started(rig, *map(host, names)) as it:
        it.has_joined(*names)
    at_once = most = 0
    for line in rig.text("slow.log").split():
        at_once += 1 if line == "+" else -1
        most = max(most, at_once)
    assert 1 < most <= 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refused", ["ssh: connect to host refused port 22: Connection refused", "ssh server"]),
        ("unknown", ["Could not resolve hostname", "hosts.yml"]),
        ("unreachable", ["No route to host", "is it up"]),
        ("denied", ["Permission denied (publickey,password)", "`ssh denied` needs no password"]),
        ("newkey", ["Host key verification failed", "log in once by hand, `ssh newkey`"]),
        ("changed", ["identification has changed", "/etc/ssh/ssh_known_hosts:7", "ssh-keygen -R changed"]),
    ],
)
def test_a_host_that_ssh_cannot_reach_is_named_with_the_words_of_ssh(rig, name, words):
    with Started(rig, host(name)) as it:
        why = it.why()
    assert why.startswith(f"{name}: ")
    assert all(word in why for word in words), why
    assert "@@@" not in why and "\n" not in why


def test_a_host_that_does_not_answer_is_given_up_within_the_bound(rig):
    with Started(rig, host("silent"), patience_s=(0.3, 60, 60)) as it:
        assert it.why() == "silent: no answer within 0.3 s; does `ssh silent true` work?"


def test_the_end_of_a_run_does_not_wait_for_a_host_that_never_answered(rig, monkeypatch):
    monkeypatch.setattr(hosts_source, "_CLOSE_S", 600.0)
    begun = time.monotonic()
    with Started(rig, host("silent")):
        until(lambda: rig.exists("ssh.log"))  # its ssh is at work; leaving the block ends the run
    assert time.monotonic() - begun < 40, "the stand-in stays silent for a minute"


def test_a_server_with_too_many_others_at_its_door_is_tried_again(rig):
    with Started(rig, host("busy")) as it:
        it.has_joined("busy")
    assert rig.text("ssh.log").count("-- busy") == 3


@pytest.mark.parametrize("name", ["denied", "hung"])
def test_what_fails_for_good_or_takes_long_is_not_tried_again(rig, name):
    with Started(rig, host(name)) as it:
        it.why()
    assert rig.text("ssh.log").count(f"-- {name}") == 1


def test_a_runner_that_cannot_begin_is_told_with_its_own_words(rig):
    with Started(rig, host("broken")) as it:
        assert "broken: something that Cantle needs is not there" in it.why()
        assert "No module named msgspec" in it.why()


def test_a_runner_that_does_not_join_is_given_up_within_the_bound(rig):
    lame = rig.program("lame", "#!/bin/sh\nexec sleep 60\n")
    with Started(rig, host("one"), patience_s=(60, 60, 60)) as it:
        it.has_joined("one")
    invitation = rig.invitation()
    told = Told()
    source = HostsSource([host("two")], ssh=(rig.ssh,), environ=rig.environ, patience_s=(60, 60, 0.3))
    source.start(type(invitation)(invitation.file, invitation.content, lame), told)
    until(lambda: bool(told.failures))
    source.close()
    assert "two: its runner did not join within 0.3 s" in told.failures[0]


def test_an_interpreter_that_is_not_there_is_told_with_what_would_help(rig):
    with Started(rig, host("one", python="/nowhere/python")) as it:
        assert it.why() == (
            "one: there is no /nowhere/python there; say in hosts.yml, as `python`, where an interpreter with Cantle is"
        )


def test_an_interpreter_that_is_too_old_is_told_with_its_version(rig):
    old = rig.program("old", '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.6.8\nexit 1\n')
    with Started(rig, host("one", python=old)) as it:
        assert "one: Python 3.6.8 is too old there: Cantle needs 3.11" in it.why()


def test_an_interpreter_without_cantle_is_told(rig):
    bare = rig.program("bare", '#!/bin/sh\ncase "$2" in *version_info*) exit 0;; esac\nexit 1\n')
    with Started(rig, host("one", python=bare)) as it:
        assert (
            it.why() == f"one: there is no Cantle for the Python there; install it there: {bare} -m pip install cantle"
        )


def test_set_up_is_done_in_one_shell_and_in_order_before_the_runner(rig):
    (rig.folder / "env.sh").write_text("export WHERE=sourced\n")
    asked = host(
        "one",
        source=(str(rig.folder / "env.sh"),),
        setup=('export WHERE="$WHERE, then set up"', "read x; export READ=$x", "umask 027"),
        env={"QUOTED": "it's $HOME", "FOO": "2"},
    )
    with Started(rig, asked) as it:
        it.has_joined("one")
        env = rig.env("one")
    assert env["WHERE"] == "sourced, then set up"
    assert env["QUOTED"] == "it's $HOME"
    assert env["FOO"] == "2"
    assert env["READ"] == ""  # a command that reads gets nothing of the script, or of the invitation
    assert rig.text("one.letter") == "a letter"
    assert "--own-env" in rig.text("one.argv")


def test_a_failing_set_up_command_is_told_with_its_words_and_its_host(rig):
    with Started(rig, host("one", setup=("true", "ls /nowhere/at/all"))) as it:
        why = it.why()
    assert why.startswith("one: the set-up command `ls /nowhere/at/all` failed with status 2: ")
    assert "No such file or directory" in why


def test_a_set_up_command_that_ends_the_shell_is_told(rig):
    with Started(rig, host("one", setup=("exit 7",))) as it:
        assert (
            it.why()
            == "one: the set-up command `exit 7` ended the shell with status 7: Welcome to one, all activities are monitored."
        )


def test_a_set_up_command_that_is_no_shell_gives_nothing_of_the_invitation_away(rig):
    with Started(rig, host("one", setup=("if then (",))) as it:
        why = it.why()
    assert "the set-up command `if then (`" in why
    assert "letter" not in why


def test_a_set_up_command_that_hangs_is_told(rig):
    with Started(rig, host("one", setup=("sleep 60",)), patience_s=(60, 0.4, 60)) as it:
        assert "the set-up command `sleep 60` was not through within 0.4 s" in it.why()


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[str]:
    """The names of its children; of those that end meanwhile, none."""
    names = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            names.append(Path(f"/proc/{child}/comm").read_text())
        except OSError:
            names.append("")
    return names


@pytest.mark.parametrize("more", [{}, {"environment": "login"}], ids=["plain", "login"])
def test_a_set_up_command_that_runs_when_the_run_ends_is_ended_on_its_host(rig, more):
    there = rig.folder
    setup = (f"echo $$ >{there}/shell", f"sleep 300 & echo $! >{there}/new; mv {there}/new {there}/asleep; wait")
    with Started(rig, host("far", setup=setup, **more)):
        until(lambda: rig.exists("asleep"))
        pids = [int(rig.text(name)) for name in ("shell", "asleep")]
        assert all(alive(pid) for pid in pids)
        time.sleep(1.5)  # the watcher has looked around
        assert all(alive(pid) for pid in pids)
    until(lambda: not any(alive(pid) for pid in pids))


def test_nobody_watches_any_more_when_the_runner_begins(rig):
    with Started(rig, host("far", setup=("echo $$ >$RIG/shell",))) as it:
        it.has_joined("far")
        shell = int(rig.text("shell"))  # it has become the runner
        until(lambda: children_of(shell) in ([], ["cat\n"]))
    until(lambda: rig.exists("far.over"))


def test_a_host_without_modules_is_told(rig, monkeypatch):
    with Started(rig, host("one", modules=("gcc/13",))) as it:
        assert "one: there is no `module` command there" in it.why()


def test_modules_are_loaded_where_there_are_some(rig):
    init = rig.folder / "init"
    init.mkdir()
    (init / "bash").write_text('module() { export LOADED="$LOADED $2"; [ "$2" != bad ]; }\n')
    rig.environ[b"MODULESHOME"] = os.fsencode(rig.folder)
    with Started(rig, host("one", modules=("gcc/13", "mpi"))) as it:
        it.has_joined("one")
        assert rig.env("one")["LOADED"] == " gcc/13 mpi"
    with Started(rig, host("two", modules=("bad",))) as it:
        assert "two: the set-up command `module load bad` failed with status 1" in it.why()


def test_files_are_copied_into_the_directory_on_the_host(rig, tmp_path_factory):
    from_here = tmp_path_factory.mktemp("from")
    (from_here / "data.bin").write_bytes(bytes(range(256)) * 500)
    (from_here / "tree").mkdir()
    (from_here / "tree" / "leaf").write_text("leaf")
    there = rig.folder / "a place" / "of work"
    asked = host("one", directory=str(there), copy=(str(from_here / "data.bin"), str(from_here / "tree")))
    with Started(rig, asked) as it:
        it.has_joined("one")
    assert (there / "data.bin").read_bytes() == (from_here / "data.bin").read_bytes()
    assert (there / "tree" / "leaf").read_text() == "leaf"
    assert rig.text("one.letter") == "a letter"
    assert rig.text("one.pwd").rstrip() == str(there)


def test_a_directory_may_stand_in_the_home_of_the_host(rig):
    with Started(rig, host("one", directory="~/scratch")) as it:
        it.has_joined("one")
    assert (rig.folder / "home" / "scratch").is_dir()


def test_what_cannot_be_copied_is_told_before_anything_is_begun(rig):
    with pytest.raises(RequestError, match="/nowhere cannot be copied to a host: No such file"):
        HostsSource([host("one", copy=("/nowhere",))])


def test_too_much_to_copy_is_told_before_anything_is_begun(rig, monkeypatch):
    monkeypatch.setattr("cantle.allocations.hosts.script.MOST_BYTES", 1000)
    (rig.folder / "large").write_bytes(bytes(1001))
    with pytest.raises(RequestError, match="put it where the hosts see it"):
        HostsSource([host("one", copy=(str(rig.folder / "large"),))])


@pytest.mark.parametrize("mode", ["inherit", "clean", "login"])
def test_o21_tasks_begin_with_the_environment_that_was_chosen(rig, mode):
    rig.environ[b"BASH_FUNC_module%%"] = b"() {  export MODULE=$1\n}"
    (rig.folder / "home" / ".bash_profile").write_text("read swallowed\nexport PROFILE=read\n")
    with Started(rig, host("one", environment=mode, setup=("true",))) as it:
        it.has_joined("one")
        env = rig.env("one")
    assert (env.get("FOO") == "1") == (mode == "inherit")
    assert ("BASH_FUNC_module%%" in env) == (mode == "inherit")
    assert (env.get("PROFILE") == "read") == (mode == "login")
    assert "SSH_CLIENT" not in env  # what belongs to the way there is no part of it
    assert env["PATH"]
    assert rig.text("one.letter") == "a letter"


def test_without_set_up_nothing_of_the_environment_is_sent(rig):
    with Started(rig, host("one")) as it:
        it.has_joined("one")
        assert "FOO" not in rig.env("one")
        assert "--own-env" not in rig.text("one.argv")


def test_a_container_stands_before_the_command(rig):
    box = rig.program("box", '#!/bin/sh\necho "$@" > "$RIG/box.args"\nshift 2\nexec "$@"\n')
    with Started(rig, host("one", container=(box, "exec", "image.sif"), python=rig.python)) as it:
        it.has_joined("one")
    assert rig.text("box.args").startswith(f"exec image.sif {rig.python} -m cantle runner --connect -")


def test_a_host_that_is_this_machine_is_started_without_ssh(rig):
    with Started(rig, Host(name="here", setup=("export X=1",))) as it:
        it.has_joined("here")
        assert rig.env("here")["X"] == "1"
    assert not rig.exists("ssh.log")


def test_a_lost_host_is_started_again_a_bounded_number_of_times(rig):
    with Started(rig, host("brief")) as it:
        it.has_joined("brief")
        for number in range(2, 7):
            it.source.lost("brief")
            until(lambda number=number: rig.text("ssh.log").count("-- brief") == number)
        assert it.told.expected == 6
        it.source.lost("brief")
        assert it.told.expected == 6
        assert "brief was started 5 times again within an hour" in it.told.notes[0]
        assert not it.told.failures


def test_what_is_left_of_a_lost_runner_ends_before_another_one_is_started(rig):
    with Started(rig, host("one")) as it:
        it.has_joined("one")
        it.source.lost("one")
        until(lambda: rig.exists("one.over"))
        until(lambda: rig.text("ssh.log").count("-- one") == 2)
        assert not it.told.failures


def test_a_host_that_is_lost_and_cannot_be_reached_any_more_is_tried_a_few_times_and_told(rig):
    with Started(rig, host("gone")) as it:
        it.has_joined("gone")
        it.source.lost("gone")
        assert "gone: ssh: connect to host gone port 22: No route to host" in it.why()
        assert len(it.told.failures) == 1
    assert rig.text("ssh.log").count("-- gone") == 4


def test_a_runner_of_somebody_else_is_not_started_again(rig):
    with Started(rig, host("one")) as it:
        it.has_joined("one")
        it.source.lost("stranger")
        assert it.told.expected == 1


def test_whatever_ends_the_watch_over_hosts_nobody_waits_for_them_and_runners_stay_until_the_end(rig, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    with Started(rig, host("one")) as it:
        it.has_joined("one")
        monkeypatch.setattr(it.source, "_begin_some", broken)
        it.source.lost("one")
        assert it.why() == "hosts are looked after no more: KeyError: 'what nobody thought of'"
        it.source.lost("one")
        assert it.told.expected == 2
        assert not rig.exists("one.over")
    until(lambda: rig.exists("one.over"))
