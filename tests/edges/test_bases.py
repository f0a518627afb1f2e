"""Do studies that share a node's runner stay apart: each with its own directory, environment and output?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, output, packed, rig, running_with, shell, sleeping

from cantle.engines.process import ProcessEngine
from cantle.runner.packed import Allowance, Writers
from cantle.testing import Rig

pytestmark = pytest.mark.real


def open_base(r: Rig, number: int, directory: Path, first: int = 0, **env: str) -> None:
    assert isinstance(r.engine, ProcessEngine)
    variables = {b"PATH": os.fsencode(os.environ["PATH"]), **{k.encode(): v.encode() for k, v in env.items()}}
    r.engine.open_base(number, str(directory), variables, False, first)


def test_each_base_has_its_own_directory_environment_and_numbers(tmp_path: Path) -> None:
    tell = 'pwd; echo "$WHO $CANTLE_TASK $CANTLE_RUN"'
    with rig(tmp_path / "run", env={"WHO": "the run", "PATH": os.environ["PATH"]}) as r:
        open_base(r, 1, tmp_path / "a", first=10, WHO="anna")
        open_base(r, 2, tmp_path / "b", first=20, WHO="bert")
        for task, base in ((10, 1), (20, 2), (3, 0), (11, 1)):
            r.launch(task, packed("/bin/sh", "-c", tell, base=base))
        told = {
            task: output(tmp_path / place, r.ended(task).output)[0].decode().splitlines()
            for task, place in ((10, "a"), (20, "b"), (3, "run"), (11, "a"))
        }
    run, a, b = (str(tmp_path / name) for name in ("run", "a", "b"))
    assert told == {
        10: [a, f"anna 0 {a}"],
        11: [a, f"anna 1 {a}"],
        20: [b, f"bert 0 {b}"],
        3: [run, f"the run 3 {run}"],
    }


def test_a_base_that_nobody_opened_or_that_is_closed_harms_its_own_tasks_only(tmp_path: Path) -> None:
    with rig(tmp_path / "run") as r:
        open_base(r, 1, tmp_path / "a")
        r.launch(0, packed("/bin/true", base=1))
        assert r.ended(0).outcome == "done"
        r.engine.close_base(1)  # type: ignore[attr-defined]
        r.launch(1, packed("/bin/true", base=1))
        r.launch(2, packed("/bin/true"))
        assert r.ended(1).outcome == "unstartable"
        assert "study 1" in r.ended(1).detail
        assert r.ended(2).outcome == "done"


def test_what_a_task_of_a_base_leaves_detached_is_ended_with_it(tmp_path: Path) -> None:
    mark = a_long_sleep(300)
    with rig(tmp_path / "run") as r:
        open_base(r, 1, tmp_path / "a", first=7)
        r.launch(3, shell("sleep 3600", "beside"))
        r.started(3)
        r.launch(7, packed("/bin/bash", "-c", f"setsid {mark} & until [ -e go ]; do sleep 0.02; done", base=1))
        r.wait_for(lambda: bool(sleeping(mark)), "it did not begin")
        (tmp_path / "a/go").touch()
        assert r.ended(7).outcome == "done"
        assert eventually(lambda: not running_with(mark))


def test_writers_of_all_bases_together_keep_no_more_files_open_than_one_may(tmp_path: Path) -> None:
    allowance = Allowance()
    allowance.left = 3
    one, other = (Writers(str(tmp_path / name), "p", allowance) for name in ("a", "b"))
    taken = [one.take(), one.take(), other.take(), other.take()]
    assert [writer.kept for writer in taken] == [True, True, True, False]
    for writer in taken:
        writer.start()
        writer.end(False)
        writer.owner.give(writer)
    one.close()
    assert allowance.left == 2
    assert other.take() is taken[3], "what is free is used again"
