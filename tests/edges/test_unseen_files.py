"""Files that another machine has written are waited for where they may be seen later, up to a bound. (O36)"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from cantle.engines import staging, unseen
from cantle.engines.mounts import mounts_in
from cantle.model.study import Stage

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /net rw,relatime shared:20 - nfs4 server:/net rw,vers=4.2
41 40 8:2 / /net/me/fast\\040disk rw shared:21 - xfs /dev/sdb rw
42 22 0:36 / /scratch rw shared:22 - lustre mds@tcp:/scratch rw
43 22 0:37 / /over rw shared:23 - nfs a:/b rw
44 43 8:3 / /over rw shared:24 - ext4 /dev/sdc rw
45 22 0:38 / /data rw - fuse.sshfs me@there: rw
""".splitlines()


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/tmp/run", "ext4"),
        ("/net/me/run", "nfs4"),
        ("/net", "nfs4"),
        ("/nets/run", "ext4"),
        ("/net/me/fast disk/run", "xfs"),
        ("/scratch/run", "lustre"),
        ("/over/run", "ext4"),
        ("/data/run", "fuse.sshfs"),
    ],
)
def test_the_kind_is_that_of_the_nearest_mount_above(directory: str, kind: str) -> None:
    assert unseen.kind_of_mount(mounts_in(MOUNTS), directory) == kind


def test_where_nothing_is_known_of_mounts_nothing_is_waited_for() -> None:
    assert unseen.kind_of_mount(mounts_in(["nonsense"]), "/tmp/run") == ""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's directory on a network file system, with a file on its way to `step/out.txt`."""
    monkeypatch.setattr(unseen, "is_over_a_network", lambda _directory: True)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def arrives(run: Path, when: threading.Event) -> threading.Thread:
    """The file is renamed into place once somebody has looked for it, as one that is seen late."""

    def move() -> None:
        when.wait(60)
        time.sleep(0.1)
        (run / "hidden").mkdir()
        (run / "hidden" / "out.txt").write_text("written\n")
        (run / "hidden").rename(run / "step")

    thread = threading.Thread(target=move)
    thread.start()
    return thread


@pytest.mark.parametrize("name", ["step/out.txt", "step/*.txt", "s*/out.txt"])
def test_a_file_of_the_run_that_is_seen_late_is_waited_for(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    ask = unseen._ask_the_server

    def asks(path: Path, directory: str) -> None:
        looked.set()
        ask(path, directory)

    monkeypatch.setattr(unseen, "_ask_the_server", asks)
    thread = arrives(run, looked)
    found = staging.staged(Stage(((f"{run}/{name}", "work/"),)), str(run), apart=True)
    thread.join()
    assert [(there, content) for there, _, content in found.files] == [("work/out.txt", b"written\n")]


@pytest.mark.parametrize("name", ["step/out.txt", "step/*.txt"])
def test_one_that_does_not_come_fails_at_the_bound_with_its_path_and_the_machine(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unseen, "SEEN_WITHIN_S", 0.2)
    with pytest.raises(FileNotFoundError, match=r"not seen from .* within 0\.2 s") as told:
        staging.staged(Stage(((f"{run}/{name}", "work/"),)), str(run), apart=True)
    assert told.value.filename == f"{run}/{name}"


@pytest.mark.parametrize(("inside", "network"), [(True, False), (False, True)])
def test_nobody_waits_for_others_nor_on_a_disk_of_this_machine(
    run: Path, inside: bool, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unseen, "is_over_a_network", lambda _directory: network)
    monkeypatch.setattr(unseen, "sleep", lambda _seconds: pytest.fail("it waits"))
    with pytest.raises(FileNotFoundError):
        staging.staged(Stage(((f"{run if inside else run.parent}/none.txt", "work/"),)), str(run), apart=True)


def test_folders_are_listed_from_the_run_s_own_down_to_where_one_is_not_seen(run: Path, monkeypatch) -> None:
    listed: list[str] = []
    monkeypatch.setattr(unseen.os, "listdir", lambda folder: listed.append(str(folder)))
    unseen._ask_the_server(run / "a" / "b" / "c.txt", str(run))
    assert listed == [str(run), f"{run}/a", f"{run}/a/b"]
