"""`cantle map`'s study: values arrive whole, commands mean what they mean in a shell, kept maps open again."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cantle.errors import RequestError, StudyError
from cantle.model.resources import Needs
from cantle.model.study import Command, Study
from cantle.readers.base import ReadOptions
from cantle.readers.map import MapReader, build
from cantle.readers.values import Values, from_csv, from_lines, from_ranges, from_words

SHELLS = ["/bin/sh", "/bin/bash"]
NASTY = [
    "'",
    '"',
    "`id`",
    "$(id)",
    "$HOME",
    "\\",
    "a\nb\n",
    " * ",
    "~",
    "#",
    "-n",
    "",
    "!!",
    "%s",
    "é\u2028",
    "}",
    "\r\n",
    "\\'",
]

# Each way in which a place in a command may be quoted; each command prints the value and a NUL.
PLACES = {
    "bare": r"printf '%s\0' {}",
    "glued to other text": r"printf '%s\0' ''{}''",
    "in single quotes": r"printf '%s\0' '{}'",
    "in double quotes": r"""printf '%s\0' "{}" """,
    "in a substitution": r"""x=$(printf %s. {}); printf '%s\0' "${x%.}" """,
    "in quotes in a substitution in quotes": r"""x="$(printf %s. "{}")"; printf '%s\0' "${x%.}" """,
    "in single quotes in a substitution in quotes": r"""x="$(printf %s. '{}')"; printf '%s\0' "${x%.}" """,
    "in backquotes": r"""x=`printf %s. {}`; printf '%s\0' "${x%.}" """,
    "in escaped quotes in backquotes in quotes": r"""x="`printf %s. \"{}\"`"; printf '%s\0' "${x%.}" """,
    "as a default in quotes": r"""printf '%s\0' "${nothing:-{}}" """,
    "as a default without quotes": r"""printf '%s\0' ${nothing:-{}}""",
    "in apostrophes that a default takes as text": r"""x="${nothing:-'{}'}"; x=${x#?}; printf '%s\0' "${x%?}" """,
    "in apostrophes that quote a pattern": r"""y={}end; [ "${y#'{}'}" = end ] && printf '%s\0' {}""",
    "in an assignment": r"""x={}; printf '%s\0' "$x" """,
    "in a function with arguments of its own": r"""f() { printf '%s\0' {}; }; f other""",
    "after a case in a substitution": r"""x="$(case a in a) printf %s. {};; esac)"; printf '%s\0' "${x%.}" """,
    "after a comment with an apostrophe": "# it's {}\nprintf '%s\\0' {}",
    "after arithmetic": r"""x=$(((1<<2)*(1+1))); printf '%s\0' {}""",
    "after an escaped quote": r"""x=\"\'; printf '%s\0' {}""",
    "after a here-document": "x=$(cat <<'END'\nit's $(\nEND\n)\nprintf '%s\\0' {}",
    "in a word that a loop runs over": r"""for x in {}; do printf '%s\0' "$x"; done""",
    "in a pattern": r"""case {} in {}) printf '%s\0' {};; esac""",
}
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


def command(study: Study, task: int = 0) -> Command:
    return study.work("/nowhere").command(task, 1, False, (), ())


def run(template: str | list[str], value: str, shell: str = "/bin/sh") -> bytes:
    argv = command(build(template, from_words([value]), shell=shell)).argv
    done = subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.stderr == b""
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("place", PLACES)
def test_a_nasty_value_arrives_whole_in_each_place_of_a_shell_command(place: str, shell: str) -> None:
    value = "".join(NASTY)
    assert run(PLACES[place], value, shell) == value.encode() + b"\0"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(values, min_size=1, max_size=4))
@example(NASTY)
def test_any_value_arrives_whole_in_every_place_of_a_shell_command(some: list[str]) -> None:
    everything = "\n".join(PLACES.values())
    for shell in SHELLS:
        study = build(everything, from_words(some), shell=shell)
        for task, value in enumerate(some):
            done = subprocess.run(command(study, task).argv, capture_output=True, check=False)
            assert done.stdout == (value.encode() + b"\0") * len(PLACES)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(values)
def test_any_value_arrives_whole_in_commands_that_need_no_shell(value: str) -> None:
    words = command(build("""sim --x={} '{}' "a {} b" {}""", from_words([value]))).argv
    assert words == ("sim", f"--x={value}", value, f"a {value} b", value)
    words = command(build(["sim", "--x={}", "$HOME {}"], from_words([value]))).argv
    assert words == ("sim", f"--x={value}", f"$HOME {value}")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_here_document_takes_values_as_they_are(shell: str) -> None:
    assert (
        run("cat <<A; cat <<-B\n{} `echo 1`\nA\n\t$(echo {})\n\tB\n", "$x `y` \\", shell) == b"$x `y` \\ 1\n$x `y` \\\n"
    )


def test_dollar_quotes_are_told_apart_where_the_shell_has_them() -> None:
    assert run(r"printf %s $'it\'s {}\n'", "a'b", "/bin/bash") == b"it's a'b\n"


def test_a_placeholder_in_a_quoted_here_document_is_refused_rather_than_left() -> None:
    with pytest.raises(RequestError, match="mark END is quoted"):
        build("cat <<'END'\n{}\nEND\n", from_words(["x"]))


@pytest.mark.parametrize(
    "text",
    [
        "printf '%s|' one | awk '{print $1}'",
        'printf %s "${HOME}"; echo {a,b} {x}',
        "find . -maxdepth 0 -exec echo {x} \\;",
        "awk 'BEGIN {if (1) {print 5}}' | cat",
        "x=abc; echo ${x} ${#} ${x#a} $((1 + 2)) # it's",
        "printf '%s\\n' 'it '\"'\"'s' a\\ b | tr a '{'",
    ],
)
def test_o27_braces_and_dollars_mean_what_they_mean_in_the_shell(text: str) -> None:
    plain = subprocess.run(["/bin/bash", "-c", text], capture_output=True, check=True).stdout
    assert plain
    assert run(text + "\n: {}", "unused", "/bin/bash") == plain


def test_o27_an_argument_list_is_verbatim() -> None:
    arguments = ["printf", "%s;", "a  b", "'", '"', "new\nline", "%d", "é", "$HOME", "{print $1}", "${}", "*", ""]
    assert command(build([*arguments, "{}"], from_words(["v"]))).argv == (*arguments, "v")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{}} {}", "{} v"),
        ("{{{}}}", "{v}"),
        ("{{#}} {#}", "{#} 1"),
        ("{}{}", "vv"),
        ("{ } {1} {value} {}", "{ } {1} {value} v"),
        ("${} {}", "${} v"),
    ],
)
def test_doubled_braces_are_text_and_only_known_names_are_placeholders(text: str, expected: str) -> None:
    assert command(build(["echo", text], from_words(["v"]))).argv == ("echo", expected)
    assert run(f"printf %s '{text}' | cat", "v") == expected.encode()


@pytest.mark.parametrize(
    "text",
    [
        "cd {}",
        "X=1 sim {}",
        "sim {} > log",
        "sim ~/{}",
        "sim *.{}",
        "sim {} && x",
        "sim $X {}",
        "sim {} \\a",
        "time x {}",
    ],
)
def test_whatever_only_a_shell_understands_goes_to_the_shell(text: str) -> None:
    assert command(build(text, from_words(["v"]), shell="/bin/dash")).argv[:2] == ("/bin/dash", "-c")


def test_the_shell_sees_no_arguments_and_its_own_name() -> None:
    assert run("echo $# $0 {}; exit 0", "v") == b"0 /bin/sh v\n"


def test_the_shell_is_bash_unless_told_otherwise() -> None:
    assert command(build("echo {} | cat", from_words(["v"]))).argv[0] == "/bin/bash"


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("echo 'x {}", "single quote open that begins at column 6"),
        ('echo x "{}', "double quote open that begins at column 8"),
        ("true\necho $(x {}", r"\$\( open that begins at line 2, column 6"),
        ("echo `x {}", "backquote open"),
        ("echo ${x {", r"\$\{ open"),
    ],
)
def test_an_open_quote_is_told_before_anything_starts(text: str, opened: str) -> None:
    with pytest.raises(RequestError, match=opened):
        build(text, from_words(["v"]))


def test_without_a_placeholder_the_value_comes_last_and_this_is_told() -> None:
    for template in ("sim --seed", ["sim", "--seed"]):
        study = build(template, from_ranges(["7"]))
        assert command(study).argv == ("sim", "--seed", "7")
        assert "appended" in study.warnings[0]
    assert build("sim {}", from_ranges(["7"])).warnings == []
    assert build("sim {{}}", from_ranges(["7"])).warnings == []


def test_what_looks_like_a_field_of_the_table_and_is_none_is_told() -> None:
    table = from_csv(b"mass,charge\n1,2\n", "t.csv")
    for template in ("sim {mas} {mass} {x} {mas}", ["sim", "{mas}", "{mass}{x}"]):
        told = build(template, table).warnings
        assert told == ["{mas}, {x} are no fields of the table, which has {mass}, {charge}: it is left to the shell"]
    assert "{X} is no field" in build("sim {mass}", table, env={"A": "{X}"}).warnings[0]
    assert build("sim {mass} ${x} {1,2} {{x}} {a,b} {#}", table).warnings == []
    assert build("awk '{print}' {}", from_words(["x"])).warnings == []


@pytest.mark.parametrize("template", ["", "  ", [], [""]])
def test_no_command_is_an_error(template: str | list[str]) -> None:
    with pytest.raises(RequestError, match="no command"):
        build(template, from_words(["v"]))


@pytest.mark.parametrize("template", ["sim \udcff", ["sim", "a\0b"]])
def test_what_no_program_can_be_given_is_an_error(template: str | list[str]) -> None:
    with pytest.raises(RequestError, match=r"NUL|not UTF-8"):
        build(template, from_words(["v"]))


# Where values come from


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-4", "1 2 3 4"),
        ("1-10:4", "1 5 9"),
        ("001-003", "001 002 003"),
        ("08-10", "08 09 10"),
        ("5-1:-2", "5 3 1"),
        ("-2-1", "-2 -1 0 1"),
        ("7", "7"),
        ("1,3,5-7", "1 3 5 6 7"),
        ("0-1", "0 1"),
    ],
)
def test_ranges(text: str, expected: str) -> None:
    assert from_ranges([text]).cells == expected.split()


def test_several_ranges_follow_each_other() -> None:
    assert from_ranges(["1-2", "10-11"]).cells == ["1", "2", "10", "11"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-x", "FIRST-LAST:STEP"),
        ("", "not a range"),
        ("5-1", "5-1:-1"),
        ("1-5:-1", "empty"),
        ("1-5:0", "step of 0"),
        ("1-100%4", "--throttle 4"),
        ("1-99999999999999999999", "more than 10,000,000"),
        ("\u0661-\u0663", "not a range"),
    ],
)
def test_a_wrong_range_says_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        from_ranges([text])


def test_all_wrong_ranges_are_told_at_once() -> None:
    with pytest.raises(StudyError) as caught:
        from_ranges(["a-b,1-2", "3-1"])
    assert len(caught.value.problems) == 2


def test_lines_are_values_as_they_stand() -> None:
    assert from_lines(b"a b\n  c\t\n'd\"\xc3\xa9", "f").cells == ["a b", "  c\t", "'d\"é"]
    assert from_lines(b"", "f").cells == []
    assert from_lines(b"a\nb\0c\0", "f", null=True).cells == ["a\nb", "c"]


def test_blank_lines_and_windows_line_ends_are_kept_and_told() -> None:
    read = from_lines(b"a\n\nb\n", "f")
    assert (read.cells, "1 line empty" in read.warnings[0]) == (["a", "", "b"], True)
    read = from_lines(b"a\r\nb\r\n", "f")
    assert (read.cells, "carriage return" in read.warnings[0]) == (["a\r", "b\r"], True)


def test_lines_that_are_not_text_are_each_named() -> None:
    with pytest.raises(StudyError) as caught:
        from_lines(b"fine\nbad \xff\nx\0y\nbad\xe9", "f.txt")
    assert [(p.file, p.line) for p in caught.value.problems] == [("f.txt", 2), ("f.txt", 4), ("f.txt", 3)]
    assert "byte 0xff at column 5" in str(caught.value)


def test_words_that_are_not_text_are_each_named() -> None:
    with pytest.raises(StudyError, match="value 2"):
        from_words(["a", os.fsdecode(b"\xff")])


def test_a_table_names_its_fields() -> None:
    table = from_csv(b'\xef\xbb\xbfsize, seed\r\n10,"a ""b"", c"\r\n\r\n20,"two\nlines"\r\n', "t.csv")
    assert (table.fields, len(table)) == (("size", "seed"), 2)
    study = build("sim --size {size} --seed {seed} {#} {other} | cat", table, shell="/bin/sh")
    assert command(study, 1).argv[4:] == ("20", "two\nlines", "2")
    assert [t.params for t in study.tasks] == ['size:10;seed:a "b", c', "size:20;seed:two\\nlines"]
    assert command(build(["sim", "{seed}{size}"], table), 0).argv == ("sim", 'a "b", c10')


def test_a_table_may_be_separated_by_tabs() -> None:
    assert from_csv(b"a\tb\n1\t2,3\n", "t.tsv").cells == ["1", "2,3"]
    assert from_csv(b"a;b\n1;2\n", "t.csv", ";").cells == ["1", "2"]


def test_all_that_is_wrong_in_a_table_is_told_at_once() -> None:
    with pytest.raises(StudyError) as caught:
        from_csv(b"a,a,,#,{x}\n1,2,3,4,5\n1,2\n", "t.csv")
    assert [(p.line, p.key) for p in caught.value.problems] == [
        (1, "field 2"),
        (1, "field 3"),
        (1, "field 4"),
        (1, "field 5"),
        (3, ""),
    ]
    for data, message in ((b"", "must name the fields"), (b"a\n\xff\n", "t.csv:2: byte 0xff"), (b'a\n"x\n', "t.csv:2")):
        with pytest.raises(StudyError, match=message):
            from_csv(data, "t.csv")


def test_a_table_of_several_columns_has_no_single_value() -> None:
    table = from_csv(b"a,b\n1,2\n", "t.csv")
    with pytest.raises(RequestError, match=r"Say which: \{a\}, \{b\}"):
        build("sim {} {a}", table)
    with pytest.raises(RequestError, match=r"none of the table's fields"):
        build("sim", table)
    assert command(build("sim {{}} {a}", table)).argv == ("sim", "{}", "1")
    assert command(build("sim {}", from_csv(b"a\n1\n", "t.csv"))).argv == ("sim", "1")


def test_a_shell_variable_is_not_taken_for_a_field_of_that_name() -> None:
    table = from_csv(b"HOME\nx\n", "t.csv")
    study = build("echo ${HOME} {HOME} | cat", table, shell="/bin/sh")
    done = subprocess.run(command(study).argv, capture_output=True, env={"HOME": "/h"}, check=True)
    assert done.stdout == b"/h x\n"


# The study


def test_tasks_are_named_and_numbered_and_tell_their_value() -> None:
    study = build("sim {}", from_words(["a", "b\nc", "d" * 200]), name="sweep", estimate_s=2.5)
    assert [t.name for t in study.tasks] == ["sweep.1", "sweep.2", "sweep.3"]
    assert [t.params for t in study.tasks][:2] == ["value:a", "value:b\\nc"]
    assert len(study.tasks[2].params) < 120
    assert {t.estimate_s for t in study.tasks} == {2.5}


def test_what_a_task_needs_stands_in_its_step() -> None:
    study = build("sim {}", from_words(["a"]), needs=Needs(cores=2, gpus=1, memory_mib=5), retries=3, walltime_s=60)
    step = study.steps[0]
    assert (step.needs, step.retries, step.walltime_s) == (Needs(cores=2, gpus=1, memory_mib=5), 3, 60)


def test_tasks_run_where_the_user_stood_and_their_output_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = build("sim {}", from_words(["a"]))
    assert (command(study).cwd, command(study).packed) == (str(tmp_path), True)


def test_the_environment_may_hold_values() -> None:
    study = build(
        "sim {}", from_words(["4", "8"]), env={"OMP_NUM_THREADS": "{}", "N": "{#}", "DEBUG": None, "P": "${HOME}"}
    )
    assert command(study, 1).env == {"OMP_NUM_THREADS": "8", "N": "2", "DEBUG": None, "P": "${HOME}"}
    with pytest.raises(RequestError, match="environment variable"):
        build("sim {}", from_words(["4"]), env={"A=B": "x"})


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a\n"])
def test_a_name_that_cannot_be_a_step_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="step's name"):
        build("sim {}", from_words(["a"]), name=name)


def keep(study: Study, folder: Path) -> None:
    for name, content in study.keep.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("template", "table"),
    [
        ("sim {} | cat", from_words(NASTY)),
        (["sim", "{}"], from_words([])),
        ("sim {b} {a}", from_csv(b'a,b\n1,"x\ny"\n,\n', "t.csv")),
    ],
)
def test_a_kept_map_opens_again_as_the_same_study(
    template: str | list[str], table: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(template, table, retries=2, env={"A": "{#}", "B": None}, name="n", estimate_s=1.0)
    keep(first, tmp_path)
    monkeypatch.chdir("/")
    reader = MapReader()
    assert reader.recognises(tmp_path / "map.json")
    for again in (reader.reopen(tmp_path), reader.read(tmp_path / "map.json", ReadOptions())):
        assert (again.steps, again.tasks, again.digest, again.keep) == (
            first.steps,
            first.tasks,
            first.digest,
            first.keep,
        )
        for task in range(len(first.tasks)):
            assert command(again, task) == command(first, task)


def test_a_changed_value_or_command_changes_the_digest() -> None:
    digests = {build(t, from_words(v)).digest for t in ("sim {}", "sim  {}") for v in (["a", "b"], ["ab"], ["a", "c"])}
    assert len(digests) == 6


def test_a_damaged_or_newer_kept_map_is_refused(tmp_path: Path) -> None:
    keep(build("sim {a} {b}", from_csv(b"a,b\n1,2\n", "t.csv")), tmp_path)
    spec = (tmp_path / "map.json").read_bytes()
    (tmp_path / "map.values").write_bytes(b"1\0")
    with pytest.raises(RequestError, match="middle of a row"):
        MapReader().reopen(tmp_path)
    (tmp_path / "map.json").write_bytes(msgspec.json.encode({**msgspec.json.decode(spec), "format": 2}))
    with pytest.raises(RequestError, match="newer Cantle"):
        MapReader().reopen(tmp_path)
    (tmp_path / "map.json").write_bytes(spec[:-5])
    with pytest.raises(RequestError, match="cannot be read"):
        MapReader().reopen(tmp_path)


def test_a_hundred_thousand_tasks_stay_small() -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    study = build("sim --seed {}", from_ranges(["1-100000"]))
    each = (tracemalloc.get_traced_memory()[0] - before) / len(study.tasks)
    tracemalloc.stop()
    assert each < 500


def test_nothing_heavy_is_imported_for_a_map() -> None:
    code = "import sys, cantle.readers.map; print(*sorted({'csv', 'yaml', 'json', 'subprocess', 'hashlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_map_whose_numbers_are_whole_reads_again_as_the_same_study(tmp_path: Path) -> None:
    study = build("echo {}", from_ranges(["1-3"]), walltime_s=60, estimate_s=2)
    for name, content in study.keep.items():
        (tmp_path / name).write_bytes(content)
    assert MapReader().reopen(tmp_path).digest == study.digest
