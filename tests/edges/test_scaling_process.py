"""Nothing that a scaling function does reaches the process of the run: it has one of its own. (D3, D7)"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, Timer
from time import monotonic, sleep

import pytest
from descriptors_rig import all_numbers_taken
from runner_rig import eventually, is_alive
from tests.builders import Story, job, node

from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import Snapshot, Wish, snapshot
from cantle.errors import PluginError
from cantle.model.kinds import Kind
from cantle.model.records import KindsDeclared
from cantle.runtime.scaling_functions import functions_of, looked_at, scalers_of
from cantle.runtime.scaling_process import Died, FunctionProcess

FUNCTIONS = """\
import ctypes
import multiprocessing
import os
import re
import subprocess
import time

calls = 0


def fine(run):
    global calls
    calls += 1
    return {"cpu": calls}


def who(run):
    return [Wish_("cpu", os.getpid(), f"{run.ready_tasks} of {run.kinds['cpu'].kind.cores} cores")]


def Wish_(*words):
    from cantle.core.scaling.snapshot import Wish

    return Wish(*words)


def raises(run):
    return 1 / 0


def leaves(run):
    raise SystemExit(3)


class Silent(Exception):
    def __str__(self):
        raise ValueError


def silent(run):
    raise Silent


def exits(run):
    os._exit(3)


def breaks(run):
    ctypes.string_at(0)


def keeps_the_interpreter(run):
    re.match("(a+)+$", "a" * 64 + "b")


def babbles(run):
    for fd in range(3, 1000):
        try:
            os.write(fd, b"all is well" * 10)
        except OSError:
            pass


def closes(run):
    os.closerange(3, 1000)
    time.sleep(60)


def leaves_somebody_behind(run):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
    os._exit(0)


def once(run):
    if os.path.exists("died"):
        return {"cpu": 1}
    open("died", "w").close()
    os.kill(os.getpid(), 9)
"""
WAIT_S = 60.0


@pytest.fixture
def seen() -> Snapshot:
    story = Story(job("a"), job("b"), on=[node("n0")])
    story.decider.scaler = lambda _plan: iter(())
    story.happens(KindsDeclared(1.0, [Kind("cpu", 4, most=10)]))
    story.decides()
    return snapshot(story.state, Scaling(), 1.0)


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], FunctionProcess]]:
    (tmp_path / "odd_functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    begun: list[FunctionProcess] = []

    def make(name: str) -> FunctionProcess:
        begun.append(FunctionProcess(f"odd_functions:{name}"))
        return begun[-1]

    yield make
    for each in begun:
        each.close()


def test_it_is_told_of_the_run_in_a_process_that_lives_on(of: Callable[[str], FunctionProcess], seen: Snapshot) -> None:
    function = of("fine")
    assert [function.ask(seen) for _ in range(3)] == [[Wish("cpu", 1)], [Wish("cpu", 2)], [Wish("cpu", 3)]]
    (wish,) = of("who").ask(seen)
    assert wish.count != os.getpid() and wish.why == "1 of 4 cores"


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("raises", "it raised ZeroDivisionError: division by zero", "return 1 / 0"),
        ("leaves", "it raised SystemExit: 3", "raise SystemExit"),
        ("silent", "it raised Silent: its text cannot be told: str() raised ValueError", "raise Silent"),
    ],
)
def test_what_it_raises_is_told_with_the_line(
    name: str, said: str, line: str, of: Callable[[str], FunctionProcess], seen: Snapshot, tmp_path: Path
) -> None:
    function = of(name)
    for _ in range(2):
        with pytest.raises(PluginError) as told:
            function.ask(seen)
        assert not isinstance(told.value, Died)
        number = next(n for n, text in enumerate(FUNCTIONS.splitlines(), 1) if line in text)
        assert str(told.value) == f"{said} ({tmp_path}/odd_functions.py, line {number})"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("exits", "it ended its process, with exit status 3"),
        ("breaks", "its process was ended by SIGSEGV"),
        ("babbles", "it wrote to a descriptor that is not its own"),
        ("closes", "it closed a descriptor that is not its own"),
        ("leaves_somebody_behind", "it ended its process, with exit status 0"),
    ],
)
def test_its_death_is_told_with_the_function_that_died(
    name: str, said: str, of: Callable[[str], FunctionProcess], seen: Snapshot, tmp_path: Path
) -> None:
    number = FUNCTIONS.splitlines().index(f"def {name}(run):") + 1
    with pytest.raises(Died) as told:
        of(name).ask(seen)
    assert str(told.value) == f"{said} ({tmp_path}/odd_functions.py, line {number})"


def test_one_that_never_lets_go_of_the_interpreter_can_be_ended(
    of: Callable[[str], FunctionProcess], seen: Snapshot
) -> None:
    function = of("keeps_the_interpreter")

    def end_it() -> None:
        while function._child is None:  # otherwise there is nothing to be ended yet, and nobody ends it later
            sleep(0.02)
        Timer(1.0, function.end).start()

    Thread(target=end_it).start()
    with pytest.raises(Died, match="its process was ended by SIGKILL"):
        function.ask(seen)


def test_after_its_death_another_process_is_begun(of: Callable[[str], FunctionProcess], seen: Snapshot) -> None:
    function = of("once")
    with pytest.raises(Died, match="SIGKILL"):
        function.ask(seen)
    assert function.ask(seen) == [Wish("cpu", 1)]


def test_when_the_run_is_over_its_process_ends_and_none_is_begun(
    of: Callable[[str], FunctionProcess], seen: Snapshot
) -> None:
    function = of("who")
    (wish,) = function.ask(seen)
    function.close()
    with pytest.raises(Died):
        function.ask(seen)
    with pytest.raises(Died, match="the run is over"):
        function.ask(seen)
    assert eventually(lambda: not is_alive(wish.count), WAIT_S)


def test_it_is_heard_also_where_many_descriptors_are_open(of: Callable[[str], FunctionProcess], seen: Snapshot) -> None:
    with all_numbers_taken():
        assert of("fine").ask(seen) == [Wish("cpu", 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def wishes(:", "SyntaxError: invalid syntax (bad_wishes.py, line 1)"),
        ("\n1 / 0", "ZeroDivisionError: division by zero ({here}/bad_wishes.py, line 2)"),
        ("import os\nos._exit(4)", "it ended its process, with exit status 4 when it was imported"),
        ("import ctypes\nctypes.string_at(0)", "its process was ended by SIGSEGV when it was imported"),
        ("wishes_ = 1", "AttributeError: module 'bad_wishes' has no attribute 'wishes'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_and_not_imported_here(
    text: str, said: str, of: Callable[[str], FunctionProcess], tmp_path: Path
) -> None:
    (tmp_path / "bad_wishes.py").write_text(text)
    with pytest.raises(PluginError) as told:
        looked_at("bad_wishes:wishes")
    assert str(told.value) == f"scaling_function bad_wishes:wishes: {said.format(here=tmp_path)}"
    assert "bad_wishes" not in sys.modules


def test_only_a_scaler_is_imported_here(of: Callable[[str], FunctionProcess], tmp_path: Path) -> None:
    (tmp_path / "wise.py").write_text("def scaler(plan):\n    yield from ()\n")
    settings = Scaling(("odd_functions:fine", "wise:scaler"))
    try:
        assert list(scalers_of(settings)) == ["wise:scaler"]
        (function,) = functions_of(settings, lambda _event: None, lambda: 0.0)
        assert function.name == "odd_functions:fine"
        assert "wise" in sys.modules and "odd_functions" not in sys.modules
    finally:
        sys.modules.pop("wise", None)


def test_an_import_that_does_not_end_is_ended(
    of: Callable[[str], FunctionProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_wishes.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr("cantle.runtime.scaling_functions.IMPORTS_WITHIN_S", 1.0)
    with pytest.raises(PluginError, match="scaling_function slow_wishes:any: to import it took more than 1 s"):
        looked_at("slow_wishes:any")


@pytest.mark.real
def test_a_run_whose_function_breaks_the_interpreter_ends_well_and_says_who_it_was(
    of: Callable[[str], FunctionProcess], tmp_path: Path
) -> None:
    kinds = ["--kinds", "cpu: {cores: 1, max: 1, provider: local}"]
    command = "until [ -e go ]; do sleep 0.05; done; echo {}"
    words = [sys.executable, "-m", "cantle", "map", command, "--range", "1-3", "-o", "out", *kinds]
    words += ["--scaling", "odd_functions:breaks"]
    run = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout is not None
    said = "note: odd_functions:breaks could not say how many nodes it wants: its process was ended by SIGSEGV"
    told = ""
    while f"{said} ({tmp_path}/odd_functions.py, line " not in told:
        told += (line := run.stdout.readline())
        assert line, told
    (tmp_path / "go").touch()
    told += run.communicate(timeout=120)[0]
    assert run.returncode == 0, told


@pytest.mark.real
def test_its_process_ends_with_a_conductor_that_is_killed(of: Callable[[str], FunctionProcess], tmp_path: Path) -> None:
    (tmp_path / "pids.py").write_text(
        "import os, re\n\n\ndef stays(run):\n"
        "    open('pid.new', 'w').write(str(os.getpid()))\n    os.rename('pid.new', 'pid')\n"
        "    re.match('(a+)+$', 'a' * 64 + 'b')\n"
    )
    kinds = ["--kinds", "cpu: {cores: 1, max: 1, provider: local}", "--scaling", "pids:stays"]
    words = [sys.executable, "-m", "cantle", "map", "sleep 60; echo {}", "--range", "1-3", "-o", "out", "-q", *kinds]
    conductor = subprocess.Popen(words, cwd=tmp_path)
    try:
        until = monotonic() + WAIT_S
        while not (tmp_path / "pid").exists() and monotonic() < until:
            sleep(0.05)
        pid = int((tmp_path / "pid").read_text())
        assert is_alive(pid)
    finally:
        conductor.send_signal(signal.SIGKILL)
        conductor.wait()
    assert eventually(lambda: not is_alive(pid), WAIT_S)
