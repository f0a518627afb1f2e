"""Nothing that a function does which adds machines or removes them reaches the process of the run. (D3, D7)"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest
from providers_rig import Heard, asked, tended
from runner_rig import eventually, is_alive

from cantle.allocations.providers.custom import CustomProvider
from cantle.allocations.providers.records import Records
from cantle.errors import MachineError, PluginError
from cantle.model.kinds import Kind
from cantle.model.resources import Node
from cantle.runtime.apart.functions import FunctionCloud, Functions
from cantle.runtime.apart.leaving import take_back_apart
from cantle.testing import check_provider

MODULE = """\
import ctypes
import itertools
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

machines = {}


def add(kind, n, letter):
    new = [f"{kind}-{len(machines) + i}" for i in range(n)]
    machines.update(dict.fromkeys(new, letter))
    return new


def remove(name):
    del machines[name]
    with open("removed", "a") as file:
        file.write(name + "\\n")


def whose(kind, n, letter):
    return [f"{os.getpid()}-{len(machines)}"]


def yields(kind, n, letter):
    for i in range(n):
        yield f"m{i}"


def endless(kind, n, letter):
    return (f"m{i}" for i in itertools.count())


def raises(*_):
    return 1 / 0


class Odd(BaseException):
    pass


def odd(*_):
    raise Odd("whatever")


def exits(*_):
    os._exit(3)


def breaks(*_):
    ctypes.string_at(0)


def holds_the_interpreter(*_):
    ctypes.PyDLL(None).sleep(60)


def babbles(*_):
    for fd in range(3, 200):
        try:
            os.write(fd, b"all is well" * 10)
        except OSError:
            pass
    time.sleep(60)


def closes(*_):
    os.closerange(3, 200)
    time.sleep(60)


def hangs(*_):
    while not os.path.exists("go on"):
        time.sleep(0.02)
    return ["late"]


def prints(*_):
    print("Starting a machine ...", flush=True)
    os.write(1, b"\\0\\1\\2")
    return ["m"]


def starts_one_that_stays(*_):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    return [str(process.pid)]


def leaves_somebody_behind(*_):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,)).start()
    os._exit(0)
"""
WAIT_S = 20.0
LETTER = "letter"


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CustomProvider]]:
    """Providers of functions of the module, all in one process."""
    (tmp_path / "odd_cloud.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    functions = Functions()
    functions.enlist()
    clouds: list[FunctionCloud] = []

    def make(add: str, remove: str = "", patience_s: float = WAIT_S) -> CustomProvider:
        cloud = FunctionCloud(functions, f"odd_cloud:{add}", f"odd_cloud:{remove}" if remove else "")
        clouds.append(cloud)
        return CustomProvider(Kind("cpu", 1), cloud, removes=bool(remove), patience_s=patience_s)

    yield make
    for cloud in clouds:
        cloud.close()
    functions.close()


Of = Callable[..., CustomProvider]


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(MODULE.splitlines(), 1) if text in line)


def test_functions_of_all_kinds_share_a_process_and_what_their_module_remembers(of: Of, tmp_path: Path) -> None:
    mine, heard, other = of("add", "remove"), Heard(), Heard()
    mine.add(asked(tmp_path, 2), heard)
    mine.add(asked(tmp_path, 1, 1), heard)
    assert heard.instances == ["cpu-0", "cpu-1", "cpu-2"]
    mine.remove(Node("cpu-1", 1), "cpu-1")
    of("whose").add(asked(tmp_path, 1, 2), other)
    (told,) = other.instances
    assert told.partition("-")[2] == "2" and int(told.partition("-")[0]) != os.getpid()
    mine.close()
    assert (tmp_path / "removed").read_text().split() == ["cpu-1", "cpu-0", "cpu-2"]


def test_names_may_come_one_by_one_but_not_without_an_end(of: Of, tmp_path: Path) -> None:
    heard = Heard()
    of("yields").add(asked(tmp_path, 2), heard)
    assert heard.instances == ["m0", "m1"]
    with pytest.raises(MachineError, match="odd_cloud:endless: add: gave back names without an end"):
        of("endless").add(asked(tmp_path, 2), heard)


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("raises", "add: ZeroDivisionError: division by zero", "return 1 / 0"),
        ("odd", "add: Odd: whatever", "raise Odd"),
        ("remove", "add: TypeError: remove() takes 1 positional argument but 3 were given", "def remove"),
        ("exits", "add: it ended its process, with exit status 3", "def exits"),
        ("breaks", "add: its process was ended by SIGSEGV", "def breaks"),
        ("babbles", "add: it wrote to a descriptor that is not its own", "def babbles"),
        ("closes", "add: it closed a descriptor that is not its own", "def closes"),
        ("leaves_somebody_behind", "add: it ended its process, with exit status 0", "def leaves"),
    ],
)
def test_whatever_one_does_is_told_with_its_line_and_the_next_one_is_heard(
    name: str, said: str, line: str, of: Of, tmp_path: Path
) -> None:
    mine = of(name)
    with pytest.raises(MachineError) as told:
        mine.add(asked(tmp_path, 1), Heard())
    place = f"({tmp_path}/odd_cloud.py, line {line_of(line)})"
    assert str(told.value).partition(" (")[0] == f"odd_cloud:{name}: {said}".partition(" (")[0]
    assert str(told.value).endswith(place)
    heard = Heard()
    of("add").add(asked(tmp_path, 1, 1), heard)
    assert heard.instances == ["cpu-0"]


def test_one_that_hangs_is_told_with_the_line_where_and_keeps_no_other_waiting(of: Of, tmp_path: Path) -> None:
    mine, heard = of("hangs", "remove", patience_s=0.5), Heard()
    of("add").add(asked(tmp_path, 1), heard)
    with pytest.raises(MachineError) as told:
        mine.add(asked(tmp_path, 1, 1), heard)
    lines = [line_of("while not os.path"), line_of("time.sleep(0.02)")]
    ends = tuple(f"add has not come back within 0.5 s ({tmp_path}/odd_cloud.py, line {line})" for line in lines)
    assert str(told.value).endswith(ends)
    of("whose").add(asked(tmp_path, 1, 2), heard)
    assert heard.instances[1].endswith("-1"), "the process is the same, and remembers what was begun"
    (tmp_path / "go on").touch()
    said = "odd_cloud:hangs: remove late: KeyError: 'late'"
    tended(mine, lambda: any(note.startswith(said) for note in heard.notes))


def test_one_that_lets_nothing_else_run_is_ended(of: Of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cantle.runtime.apart.functions._TELLS_WITHIN_S", 0.5)
    mine, heard = of("holds_the_interpreter", patience_s=0.5), Heard()
    told: list[str] = []

    other = of("hangs")
    waits = Thread(target=lambda: _said(told, lambda: other.add(asked(tmp_path, 1), heard)))
    waits.start()
    with pytest.raises(MachineError) as ended:
        mine.add(asked(tmp_path, 1), heard)
    waits.join(WAIT_S)
    place = f"({tmp_path}/odd_cloud.py, line {line_of('def holds')})"
    assert str(ended.value).endswith(
        f"has not come back within 0.5 s and let nothing else run, so its process was ended {place}"
    )
    assert told and "was ended, since odd_cloud:holds_the_interpreter let nothing else run in it" in told[0]
    of("add").add(asked(tmp_path, 1), heard)
    assert heard.instances == ["cpu-0"]


def _said(told: list[str], act: Callable[[], Any]) -> None:
    try:
        act()
    except MachineError as problem:
        told.append(str(problem))


def test_what_it_prints_is_not_taken_for_an_answer(
    of: Of, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    heard = Heard()
    of("prints").add(asked(tmp_path, 1), heard)
    assert heard.instances == ["m"]
    assert capfdbinary.readouterr().out == b"Starting a machine ...\n\0\1\2"


def test_what_it_has_started_outlives_its_process(of: Of, tmp_path: Path) -> None:
    mine, heard = of("starts_one_that_stays"), Heard()
    mine.add(asked(tmp_path, 1), heard)
    pid = int(heard.instances[0])
    with pytest.raises(MachineError, match="exit status 3"):
        of("exits").add(asked(tmp_path, 1), heard)
    try:
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def add(:", "SyntaxError: invalid syntax (bad_cloud.py, line 1)"),
        ("\n1 / 0", "ZeroDivisionError: division by zero ({here}/bad_cloud.py, line 2)"),
        ("import sys\nsys.exit(4)", "SystemExit: 4"),
        ("import os\nos._exit(4)", "it ended its process, with exit status 4 when it was imported"),
        ("add_ = 1", "AttributeError: module 'bad_cloud' has no attribute 'add'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_before_the_run(of: Of, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad_cloud.py").write_text(text)
    functions = Functions()
    functions.enlist()
    with pytest.raises(PluginError) as told:
        FunctionCloud(functions, "bad_cloud:add")
    functions.close()
    assert f"provider bad_cloud:add: {said.format(here=tmp_path)}" in str(told.value)
    assert "bad_cloud" not in sys.modules


def test_when_nobody_asks_any_more_the_process_ends(of: Of, tmp_path: Path) -> None:
    functions, heard = Functions(), Heard()
    ones = [FunctionCloud(functions, "odd_cloud:whose") for _ in range(2)]
    CustomProvider(Kind("cpu", 1), ones[0], removes=False).add(asked(tmp_path, 1), heard)
    CustomProvider(Kind("gpu", 1), ones[1], removes=False).add(asked(tmp_path, 1), heard)
    never = FunctionCloud(functions, "odd_cloud:add")
    (pid,) = {int(name.partition("-")[0]) for name in heard.instances}
    ones[0].close()
    ones[0].close()
    assert is_alive(pid)
    ones[1].close()
    assert not is_alive(pid), "whoever never asked is not waited for"
    with pytest.raises(MachineError, match="the run is over"):
        never.remove("m")


def test_what_a_dead_conductor_left_is_removed_by_functions_apart(of: Of, tmp_path: Path) -> None:
    (tmp_path / "other_cloud.py").write_text("import os\n\n\ndef remove(name):\n    os._exit(5)\n")
    records = Records(tmp_path / "elastic")
    for number, function in enumerate(("odd_cloud:prints", "other_cloud:remove", "odd_cloud:nothing")):
        records.asked(number, "token", "cpu", 1, {"by": "function", "remove": function})
        records.handed_out(number, f"m{number}")
    told: list[str] = []
    assert take_back_apart(records.folder, told.append) == 1
    assert told[0] == "request 0, 1 of kind cpu: m0 removed, left by an earlier conductor"
    assert f"m1: it ended its process, with exit status 5 ({tmp_path}/other_cloud.py, line 4)" in told[1]
    assert "module 'odd_cloud' has no attribute 'nothing'" in told[2]
    assert [left.number for left in records.left()] == [1, 2]


def test_functions_keep_the_promises_of_a_provider_in_a_process_of_their_own(of: Of, tmp_path: Path) -> None:
    check_provider(lambda: of("add", "remove"), tmp_path)
    assert sorted((tmp_path / "removed").read_text().split()) == ["cpu-0", "cpu-1"]


CLOUD = """\
import os
import subprocess
import sys

begun = {}


def add(kind, n, letter):
    with open("asked", "a") as file:
        file.write(f"{n}\\n")
    TROUBLE
    for number in range(n):
        name = f"{kind}-{len(begun)}"
        words = ["runner", "--connect", letter, "--kind", kind, "--cores", "1", "--name", name]
        begun[name] = subprocess.Popen([sys.executable, "-m", "cantle", *words], stdin=subprocess.DEVNULL)
    return list(begun)[-n:]


def remove(name):
    begun[name].terminate()
    begun[name].wait()
    open(f"{name}.removed", "w").close()
"""


def _map(tmp_path: Path, module: str, **trouble: str) -> subprocess.CompletedProcess[str]:
    text = CLOUD.replace("TROUBLE", trouble.get("trouble", "pass"))
    (tmp_path / f"{module}.py").write_text(text)
    kinds = json.dumps({"cpu": {"cores": 1, "max": 1, "add": f"{module}:add", "remove": f"{module}:remove"}})
    words = [sys.executable, "-m", "cantle", "map", "echo {}", "--range", "1-3", "-o", "out", "--kinds", kinds]
    words += ["--scaling", "retry=0.5s"]
    return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)


@pytest.mark.real
def test_a_run_goes_on_when_its_provider_breaks_its_process_and_asks_once_for_each_need(tmp_path: Path) -> None:
    done = _map(tmp_path, "dying_cloud", trouble='if not os.path.exists("died"): open("died", "w"); os._exit(3)')
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"it ended its process, with exit status 3 ({tmp_path}/dying_cloud.py, line 8)" in done.stdout + done.stderr
    assert (tmp_path / "asked").read_text().split() == ["1", "1"]
    assert (tmp_path / "cpu-0.removed").exists() and not (tmp_path / "cpu-1.removed").exists()


@pytest.mark.real
def test_the_process_ends_with_a_conductor_that_is_killed_and_what_it_began_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "slow_cloud.py").write_text(
        "import ctypes, os\n\n\ndef add(kind, n, letter):\n"
        "    if not os.path.exists('first'):\n        open('first', 'w').close()\n        return ['m1']\n"
        "    open('pid.new', 'w').write(str(os.getpid()))\n    os.rename('pid.new', 'pid')\n"
        "    ctypes.PyDLL(None).sleep(60)\n\n\n"
        "def remove(name):\n    open(f'{name}.removed', 'w').close()\n"
    )
    kinds = json.dumps({"cpu": {"cores": 1, "max": 2, "add": "slow_cloud:add", "remove": "slow_cloud:remove"}})
    words = [sys.executable, "-m", "cantle", "map", "echo {}", "--range", "1-3", "-o", "out", "-q", "--kinds", kinds]
    conductor = subprocess.Popen([*words, "--scaling", "fixed:1", "--scaling", "cool-down=0s"], cwd=tmp_path)
    try:
        until = monotonic() + WAIT_S
        while not (tmp_path / "first").exists() and monotonic() < until:
            sleep(0.05)
        add = [sys.executable, "-m", "cantle", "node", "want", "out", "cpu", "2"]
        subprocess.run(add, cwd=tmp_path, check=True, timeout=WAIT_S, capture_output=True)
        while not (tmp_path / "pid").exists() and monotonic() < until:
            sleep(0.05)
        pid = int((tmp_path / "pid").read_text())
        assert is_alive(pid)
    finally:
        conductor.send_signal(signal.SIGKILL)
        conductor.wait()
    assert eventually(lambda: not is_alive(pid), WAIT_S)
    cancel = [sys.executable, "-m", "cantle", "cancel", "-y", "out"]
    done = subprocess.run(cancel, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "m1 removed, left by an earlier conductor" in done.stderr and (tmp_path / "m1.removed").exists()
    assert "none is canceled: cantle resume out goes on with them" in done.stdout
