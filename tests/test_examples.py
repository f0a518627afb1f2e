"""Every example does what it says: each `*.expected` beside them is a record of commands and of what they print.

A line `$ command` is run by bash, in a copy of the examples; what follows is its output, without what differs from run to run
(times, names of machines, the order in which parallel tasks end); `[exit status N]` closes one that did not succeed. After a
wanted change, `CANTLE_UPDATE_EXPECTED=1` writes the records anew: read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
RECORDS = sorted(EXAMPLES.rglob("*.expected"))
UPDATE = os.environ.get("CANTLE_UPDATE_EXPECTED", "") not in ("", "0")

_COUNTED = re.compile(r"\[ *\d+/(\d+)\] ")
_VARYING = [
    (re.compile(r" on \S+ \(\d+ cores?[^)]*\)"), " on HOST"),
    (re.compile(r"\d+(\.\d+)? (ms|s|min|h)\b"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T_]\d\d:?\d\d:?\d\d(\.\d+)?"), "DATE"),
    (re.compile(r"\b\d+:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
    (re.compile(r"^note: the affinity mask leaves .*\n", re.MULTILINE), ""),
    (re.compile(r"^TIME: .* cores in use; .*\n", re.MULTILINE), ""),  # now and then, where all takes longer
]


def without_what_varies(output: str, folder: Path) -> str:
    """The output as it is the same in every run: progress in the order of names, and no times."""
    output = output.replace(str(folder), "EXAMPLES")
    for pattern, word in _VARYING:
        output = pattern.sub(word, output)
    kept: list[str] = []
    progress: list[str] = []
    for line in [*output.splitlines(), ""]:
        if _COUNTED.match(line):
            progress.append(_COUNTED.sub(r"[\1] ", line))
        elif progress and line.startswith("    |"):
            progress[-1] += f"\n{line}"
        else:
            kept += [*sorted(progress), line]
            progress = []
    return "\n".join(kept[:-1])


def play(record: str, folder: Path, tools: Path) -> str:
    """Run a record's commands and give the record as it is now."""
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }
    told = []
    for command in re.findall(r"^\$ (.*)$", record, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        told += [f"$ {command}", without_what_varies(done.stdout, folder)]
        if done.returncode:
            told.append(f"[exit status {done.returncode}]")
    return "\n".join(filter(None, told)) + "\n"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a `cantle` that is this very one, and the Python that runs it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cantle").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cantle "$@"\n')
    (folder / "cantle").chmod(0o755)
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


@pytest.mark.real
@pytest.mark.parametrize("record", RECORDS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_prints_what_it_is_expected_to(record: Path, tmp_path: Path, tools: Path) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    expected = record.read_text()
    now = play(expected, folder / record.parent.relative_to(EXAMPLES), tools)
    if UPDATE:
        record.write_text(now)
    assert now == (now if UPDATE else expected)


def test_every_example_has_its_expected_output() -> None:
    told = "".join(f"{record.parent.name}/{line}\n" for record in RECORDS for line in record.read_text().splitlines())
    examples = [path for path in EXAMPLES.rglob("*") if path.suffix in (".yaml", ".sh", ".json")]
    examples += (path for folder in ("python", "elastic") for path in (EXAMPLES / folder).glob("*.py"))
    assert len(examples) >= 4
    for example in examples:
        assert re.search(rf"^{re.escape(example.parent.name)}/\$ .*\b{re.escape(example.name)}", told, re.MULTILINE), (
            example
        )


@pytest.mark.real
def test_the_demo_needs_no_compiler(tmp_path: Path, tools: Path) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    (tools / "cc").write_text("#!/bin/sh\necho 'cc: not here' >&2\nexit 127\n")
    (tools / "cc").chmod(0o755)
    record = (EXAMPLES / "lulesh-like" / "study.expected").read_text()
    assert play(record, folder / "lulesh-like", tools) == record
