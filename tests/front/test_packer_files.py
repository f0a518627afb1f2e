"""A packer may stand in a file, as a parameter generator does. (M13)"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rundirs import cantle

from cantle.errors import PluginError
from cantle.plugins import find

PACKER = (
    "from cantle.core.packing import first_fit\n"
    "def mine(plan):\n    open('asked', 'a').close()\n    yield from first_fit(plan)\n"
)
STUDY = "description: {name: one, description: x}\nstudy:\n    - {name: a, description: x, run: {cmd: 'true'}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_run_is_packed_by_it(capfd: pytest.CaptureFixture[str]) -> None:
    Path("tools").mkdir()
    Path("tools/pack.py").write_text(PACKER)
    Path("one.yaml").write_text(STUDY)
    assert cantle("run", "one.yaml", "-o", "out", "--packer", "tools/pack.py:mine") == 0
    assert Path("asked").exists(), capfd.readouterr()


def test_the_same_file_is_one_module_and_one_of_a_known_name_is_another() -> None:
    Path("json.py").write_text(PACKER)
    first = find("packers", "json.py:mine")
    assert find("packers", f"{Path.cwd()}/json.py:mine") is first
    assert not hasattr(sys.modules["json"], "mine"), "the standard library's stays"


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (None, "nothing.py:mine", "No such file"),
        ("def", "bad.py:mine", "SyntaxError"),
        (PACKER, "good.py:yours", "yours"),
    ],
)
def test_what_cannot_be_had_from_it_is_told_and_leaves_nothing(text: str | None, name: str, why: str) -> None:
    if text is not None:
        Path(name.partition(":")[0]).write_text(text)
    with pytest.raises(PluginError, match=why):
        find("packers", name)
    assert "bad" not in sys.modules
