"""Which values does a map run over?

Ranges, lines, a CSV table or words of the command line, all become one flat list of cells: row by row, `len(fields)` cells
each. A value arrives at its program exactly as it stands here, so nothing is trimmed, split or unescaped on the way;
what looks like a slip (blank lines, Windows line ends) is kept and told as a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from cantle.errors import Problem, StudyError

MOST_VALUES = 10_000_000
"""More than this in one range is a slip of the keyboard, not a study."""

_PROBLEMS_SHOWN = 20
_RANGE = re.compile(r"(-?\d+)-(-?\d+)(?::(-?\d+))?")


class Values(msgspec.Struct):
    """What a map runs over. `fields` are a table's column names; a plain list has the one field "" (written `{}`)."""

    cells: list[str]
    fields: tuple[str, ...] = ("",)
    warnings: list[str] = []

    def __len__(self) -> int:
        return len(self.cells) // len(self.fields)


def from_ranges(texts: Iterable[str]) -> Values:
    """`1-1000`, `1-100:5` (every fifth), `10-1:-1`, `001-100` (all as wide as the widest), several joined by commas.

    Both ends belong to the range. Raises StudyError naming each range that is none.
    """
    cells: list[str] = []
    problems: list[Problem] = []
    for text in texts:
        for part in text.split(","):
            try:
                cells += _range(part.strip())
            except ValueError as slip:
                what, _, mend = str(slip).partition("\n")
                problems.append(Problem("--range", 0, part.strip() or repr(text), what, mend))
    if problems:
        raise StudyError(problems)
    return Values(cells)


def _range(text: str) -> Iterable[str]:
    """One range's numbers as text. Raises ValueError("what\\nmend")."""
    if re.fullmatch(r"-?\d+", text, re.ASCII):
        return [text]
    if "%" in text:
        raise ValueError(
            f"not a range of whole numbers\nA bound on tasks at once is --throttle {text.partition('%')[2]}."
        )
    match = _RANGE.fullmatch(text) if text.isascii() else None
    if match is None:
        raise ValueError("not a range of whole numbers\nWrite FIRST-LAST or FIRST-LAST:STEP, as in 1-1000 or 0-90:10.")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0:
        raise ValueError("a step of 0 never gets to the end\nLeave the step away for 1.")
    numbers = range(first, last + (1 if step > 0 else -1), step)
    if not numbers:
        raise ValueError(f"this range is empty\nTo count down, write {first}-{last}:{-step}.")
    # not len(): it raises OverflowError for what does not fit in an index
    if abs(last - first) // abs(step) >= MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values\nCut it into several maps.")
    padded = any(re.match(r"-?0\d", end, re.ASCII) for end in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    return map(str, numbers) if not width else (f"{n:0{width}d}" for n in numbers)


def from_words(words: Sequence[str]) -> Values:
    """Values that stand on the command line. Raises StudyError on text that is not UTF-8."""
    problems = [
        Problem(
            "command line", 0, f"value {n}", _not_text(word), "Give such values by way of a file name that is text."
        )
        for n, word in enumerate(words, 1)
        if not _is_text(word)
    ]
    if problems:
        raise StudyError(problems[:_PROBLEMS_SHOWN])
    return Values(list(words))


def from_lines(data: bytes, source: str, null: bool = False) -> Values:
    """Each line is a value, without its line end; the last one may lack it. `null`: the values end in NUL instead.

    Raises StudyError naming each line that is not UTF-8 or holds a NUL, which no program can be given as an argument.
    """
    if null:
        data = data.removesuffix(b"\0")
        raw = data.split(b"\0") if data else []
    else:
        data = data.removesuffix(b"\n")
        raw = data.split(b"\n") if data else []
    noun = "value" if null else "line"
    problems: list[Problem] = []
    try:
        # all at once is several times faster, and right nearly always
        cells = data.decode().split("\0" if null else "\n") if data else []
    except UnicodeDecodeError:
        cells = []
        for number, line in enumerate(raw, 1):
            try:
                line.decode()
            except UnicodeDecodeError as slip:
                what = f"byte {line[slip.start]:#04x} at column {slip.start + 1} is not UTF-8"
                mend = "Convert it, say with: iconv -f latin1 -t utf-8"
                problems.append(Problem(source, number, "", what, mend))
    if not null and b"\0" in data:
        for number, line in enumerate(raw, 1):
            if b"\0" in line:
                what = "holds a NUL byte, which no program can be given as an argument"
                problems.append(Problem(source, number, "", what, "For values that end in NUL, use --null."))
    if problems:
        raise StudyError(problems[:_PROBLEMS_SHOWN])
    warnings = []
    if blank := cells.count(""):
        warnings.append(
            f"{source}: {blank:,} {noun if blank == 1 else noun + 's'} empty: each is a task with the empty value"
        )
    if cells and not null and all(cell.endswith("\r") for cell in cells):
        warnings.append(
            f"{source}: lines end in a carriage return, which is part of the values: remove it with dos2unix"
        )
    return Values(cells, warnings=warnings)


def from_csv(data: bytes, source: str, delimiter: str = "") -> Values:
    """A table whose first row names the fields. Quoting as spreadsheets do it; `delimiter` "" means tab in `.tsv`, else comma.

    Raises StudyError naming each row that does not fit the head, each bad field name, and what is not UTF-8.
    """
    import csv
    import io

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as slip:
        line = data.count(b"\n", 0, slip.start) + 1
        what = f"byte {data[slip.start]:#04x} is not UTF-8"
        raise StudyError([Problem(source, line, "", what, "Convert it, say with: iconv -f latin1 -t utf-8")]) from None
    if not delimiter:
        delimiter = "\t" if source.endswith(".tsv") else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    problems: list[Problem] = []
    cells: list[str] = []
    fields: tuple[str, ...] = ()
    try:
        fields = tuple(name.strip() for name in next(rows, []))
        problems += _bad_fields(fields, source)
        width = len(fields)
        for row in rows:
            if len(row) == width:
                cells += row
            elif row:
                what = f"{len(row)} fields, but the head has {width}: {', '.join(fields)}"
                problems.append(
                    Problem(source, rows.line_num, "", what, f'Put "..." round text that holds {delimiter!r}.')
                )
    except csv.Error as slip:
        problems.append(Problem(source, rows.line_num, "", str(slip), 'A quote within a quoted field is written "".'))
    if "\0" in text:
        problems.append(Problem(source, 0, "", "holds a NUL byte, which no program can be given as an argument"))
    if problems:
        raise StudyError(problems[:_PROBLEMS_SHOWN])
    return Values(cells, fields)


def _bad_fields(fields: tuple[str, ...], source: str) -> Iterable[Problem]:
    """What is wrong with a table's head."""
    if not fields:
        yield Problem(
            source,
            1,
            "",
            "the first row must name the fields, but there is none",
            "Begin with a line such as: size,seed",
        )
    for place, name in enumerate(fields):
        key = f"field {place + 1}"
        if not name or name == "#" or not name.isprintable() or any(c in "{}" for c in name):
            what = f"{name!r} cannot be a field's name"
            yield Problem(
                source, 1, key, what, "A name is written in braces in the command, and {#} is the row's number."
            )
        elif name in fields[:place]:
            yield Problem(source, 1, key, f"{name!r} names an earlier field as well", "Rename one of them.")


def _is_text(word: str) -> bool:
    """Whether the word can be written as UTF-8: no stray bytes of another encoding, no NUL."""
    try:
        return b"\0" not in word.encode()
    except UnicodeEncodeError:
        return False


def _not_text(word: str) -> str:
    return f"{word!r} holds a NUL" if "\0" in word else f"{word!r} is not UTF-8"
