"""What was asked for, point by point, has a test that shows it, and each of the forty cases has one that bears its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "points.md").read_text()
ROWS = re.findall(r"^\| ([MRSDH]\d+) \| (.+?) \| (.+?) \| `([^`]+)` \|$", PAGE, re.MULTILINE)
NUMBERS = [
    f"{letter}{n}" for letter, last in zip("MRSDH", (17, 12, 16, 10, 12), strict=True) for n in range(1, last + 1)
]
CASES = [f"O{n:02}" for n in range(1, 41)]


def borne() -> dict[str, list[str]]:
    """For each case the tests that bear its number: in their names, or in what is said of them or of all of their module."""
    found: dict[str, list[str]] = {case: [] for case in CASES}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if not re.search(r"[Oo]\d\d", text):
            continue
        module = ast.parse(text)
        of_all = ast.get_docstring(module) or ""
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = f"{node.name} {ast.get_docstring(node) or ''} {of_all}"
                for number in set(re.findall(r"(?:\b|_)[Oo](\d\d)(?:\b|_)", said)):
                    found.setdefault(f"O{number}", []).append(f"{path.name}::{node.name}")
    return found


def test_every_point_has_its_row_in_the_order_of_the_numbers() -> None:
    assert [row[0] for row in ROWS] == NUMBERS
    assert len(ROWS) == len(re.findall(r"^\| [A-Z]\d", PAGE, re.MULTILINE)), "each line of the tables is one"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_shows_a_point_is_there(row: tuple[str, str, str, str]) -> None:
    file, _, name = row[3].partition("::")
    text = (TESTS / file).read_text()
    assert re.search(rf"^def test_{name}\(" if name else r"^def test_", text, re.MULTILINE)


def test_every_case_has_a_test_that_bears_its_number_and_there_are_no_others() -> None:
    found = borne()
    assert [case for case, tests in found.items() if not tests] == []
    assert list(found) == CASES


def test_where_the_page_points_in_another_page_there_is_such_a_heading() -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]+\.md)#([\w-]+)\)", PAGE):
        text = (TESTS.parent / "docs" / target).resolve().read_text()
        headings = {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert anchor in headings, f"{target}#{anchor}"
