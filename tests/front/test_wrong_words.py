"""Is who mistypes an option told so, in a line that can be seen?"""

from __future__ import annotations

import pytest

from cantle.cli.command import USAGE_ERROR
from cantle.cli.main import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run s.yaml --throtle 4", "cantle run: there is no option --throtle; did you mean --throttle?"),
        ("run --throtle 4", "cantle run: there is no option --throtle; did you mean --throttle?"),
        ("run s.yaml --cor=4", "cantle run: there is no option --cor; did you mean --cores?"),
        ("map x --cores_per_task 2", "cantle map: there is no option --cores_per_task; did you mean --cores-per-task?"),
        ("run s.yaml --zzz", "cantle run: there is no option --zzz; see cantle run --help"),
        ("partition list x --jsn", "cantle partition: there is no option --jsn; did you mean --json?"),
        ("run s.yaml --cores two", "cantle run: argument --cores: 'two' is not a whole number; see cantle run --help"),
        ("run", "cantle run: the following arguments are required: STUDY; see cantle run --help"),
        ("run one.yaml two.yaml", "cantle run: there is nothing to do with 'two.yaml'; see cantle run --help"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_told_in_one_line(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == USAGE_ERROR
    assert capsys.readouterr().err == f"{told}\n"


def test_of_several_choices_the_nearest_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["partition", "lst", "x"])
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("; did you mean list?\n")


def test_a_short_usage_stands_before_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["logs", "x"])
    *usage, told = capsys.readouterr().err.splitlines()
    assert usage and usage[0].startswith("usage: cantle logs") and len(usage) <= 3
    assert told == "cantle logs: the following arguments are required: TASK; see cantle logs --help"
