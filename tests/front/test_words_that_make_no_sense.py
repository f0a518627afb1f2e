"""Whatever stands in a command line: what cannot be meant is told in one sentence, and never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from rundirs import SWEEP, cantle

from cantle.errors import PluginError
from cantle.plugins import made


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    return path


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["validate", "--reader", "os:system"], 1, "reader os:system: TypeError"),
        (["validate", "--reader", "json:JSONDecoder"], 1, "reader json:JSONDecoder: it has no method `read`"),
        (["validate", "--launcher", "os:system"], 1, "--launcher: launcher os:system: TypeError"),
        (["simulate", "--failures=--"], 64, "argument --failures: '--' is no value"),
        (["simulate", "--start-delay", "inf"], 64, "inf has no end"),
        (["simulate", "--jitter", "nan"], 64, "nan is below 0"),
        (["simulate", "--lose", "nan:0", "--nodes", "2x2"], 1, "--lose nan:0: write SECOND:NODE"),
    ],
)
def test_a_word_that_makes_no_sense_is_told(
    words: list[str], status: int, told: str, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle(words[0], study, *words[1:]) == status
    assert told in capsys.readouterr().err


def test_what_is_none_of_its_kind_is_called_by_its_name() -> None:
    for group, name, what in (
        ("batch_systems", "os:system", r"batch system os:system: TypeError"),
        ("hosted_engines", "json:JSONEncoder", "hosted engine json:JSONEncoder: it has no method `head`"),
    ):
        with pytest.raises(PluginError, match=what):
            made(group, name)  # type: ignore[arg-type]
    assert made("readers", "maestro").name == "maestro"
