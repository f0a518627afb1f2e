"""Parameters made by a generator's file, as Maestro's `--pgen` has it, without Maestro."""

from __future__ import annotations

import subprocess
import sys

import pytest
from maestro_oracle import instances
from maestro_ours import SPECS, instances_of, one_step, read, write

from cantle.errors import RequestError, StudyError

SPEC = one_step("cmd: echo $(P) $(P.label) $(P.name)", "env: {variables: {LOW: 3, HIGH: x$(LOW), OUTPUT_PATH: out}}")


def generator(folder, body):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    head = (
        "from maestrowf.datastructures.core import ParameterGenerator\n\n\ndef get_custom_generator(env, **kwargs):\n"
    )
    return str(write(folder, f"{head}    p = ParameterGenerator()\n{lines}", "pgen.py"))


def test_a_table_is_read_with_the_arguments_given(tmp_path):
    table = write(tmp_path, "x,y\n1,a\n2,b\n3,c\n", "table.csv")
    options = {"pgen": str(SPECS / "table_generator.py"), "pargs": (f"CSV: {table}", "ROWS:2")}
    study = read(SPECS / "table.yaml", **options)
    assert [task.name for task in study.tasks] == ["show_X.1.Y.a", "show_X.2.Y.b"]
    theirs = instances(
        SPECS / "table.yaml", tmp_path / "out", SPECS / "table_generator.py", {"CSV": str(table), "ROWS": "2"}
    )
    assert instances_of(study, tmp_path / "out") == theirs


def test_without_the_generator_nothing_varies():
    assert [task.name for task in read(SPECS / "table.yaml").tasks] == ["show"]


def test_generated_parameters_replace_those_of_the_file(tmp_path):
    text = one_step("cmd: echo $(P) $(Q)", "global.parameters:\n  Q: {values: [1, 2], label: Q.%%}")
    pgen = generator(tmp_path, "p.add_parameter('P', [1.5, None, 'z'])\nreturn p")
    study = read(write(tmp_path, text), pgen=pgen)
    assert [task.name for task in study.tasks] == ["work_P.1.5", "work_P.None", "work_P.z"]


def test_labels_may_be_a_list_and_names_differ_from_keys(tmp_path):
    pgen = generator(tmp_path, "p.add_parameter('P', [1, 2], ['one', 'two'], 'count')\nreturn p")
    study = read(write(tmp_path, SPEC), pgen=pgen)
    assert [task.name for task in study.tasks] == ["work_one", "work_two"]
    assert study.work("/run").command(1, 1, False, (), ()).script.endswith("echo 2 two count\n")


def test_the_environment_and_the_places_are_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = """import os
assert env.find("LOW").value == 3
assert env.find("HIGH").value == "x3"
assert env.find("NONE") is None
assert kwargs["OUTPUT_PATH"] == os.path.join(os.getcwd(), "out")
assert kwargs["SPECROOT"].value == os.getcwd() == os.path.join(kwargs["SPECROOT"])
assert kwargs["KEY"] == "a:b"
p.add_parameter("P", list(range(env.find("LOW").value)))
return p"""
    assert len(read(write(tmp_path, SPEC), pgen=generator(tmp_path, body), pargs=("KEY:a:b",)).tasks) == 3


def test_a_generator_may_be_a_subclass_with_combinations_of_its_own(tmp_path):
    body = """from maestrowf.datastructures.core import Combination
class Odd(ParameterGenerator):
    def get_combinations(self):
        for i in (1, 3, 5):
            c = Combination()
            c.add("P", "P", i, f"odd{i}")
            yield c
return Odd()"""
    study = read(write(tmp_path, SPEC), pgen=generator(tmp_path, body))
    assert [task.name for task in study.tasks] == ["work_odd1", "work_odd3", "work_odd5"]


def test_no_maestro_need_be_installed_and_an_installed_one_is_not_disturbed(tmp_path):
    pgen = generator(tmp_path, "p.add_parameter('P', [1])\nreturn p")
    program = f"""
import sys
from pathlib import Path
sys.modules.update(dict.fromkeys(["maestrowf", "maestrowf.datastructures", "maestrowf.datastructures.core"]))
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader
print(len(MaestroReader().read(Path({str(write(tmp_path, SPEC))!r}), ReadOptions(pgen={pgen!r}, dry=True)).tasks))
print(sys.modules["maestrowf"], "custom_gen" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert result.stdout == "1\nNone False\n"
    before = sys.modules["maestrowf.datastructures.core"]
    read(write(tmp_path, SPEC), pgen=pgen)
    assert sys.modules["maestrowf.datastructures.core"] is before


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("p.add_parameter('P', [1, 2])\np.add_parameter('Q', [1])\nreturn p", 7, "Q has 1 values"),
        ("return 1 / 0", 6, "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", 6, "SystemExit: 3"),
        ("return [1]", 0, "returned list, not a ParameterGenerator"),
        ("p.add_parameter('P', [])\nreturn p", 0, "have no values"),
        ("from maestrowf.nowhere import x", 6, "ModuleNotFoundError"),
        ("return (", 6, "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_generator_is_told_with_its_line(body, line, what, tmp_path):
    with pytest.raises(StudyError) as caught:
        read(write(tmp_path, SPEC), pgen=generator(tmp_path, body))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(tmp_path / "pgen.py"), line)
    assert what in problem.what


def test_problems_of_the_file_and_of_the_generator_are_told_together(tmp_path):
    with pytest.raises(StudyError) as caught:
        read(write(tmp_path, one_step("proc: 1\nprocs: $(P)")), pgen=generator(tmp_path, "return 1 / 0"))
    assert sorted(problem.key for problem in caught.value.problems) == ["get_custom_generator", "study[0].run.proc"]


def test_a_file_without_the_function_is_an_error(tmp_path):
    with pytest.raises(StudyError, match="defines no function get_custom_generator"):
        read(write(tmp_path, SPEC), pgen=str(write(tmp_path, "x = 1\n", "pgen.py")))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"pargs": ("A:1",)}, "say which with --pgen"),
        ({"pgen": "/no/such/pgen.py"}, "--pgen /no/such/pgen.py: cannot be read"),
        ({"pgen": str(SPECS / "table_generator.py"), "pargs": ("A",)}, "--pargs 'A'"),
    ],
)
def test_a_wrong_use_of_generators_is_a_wrong_request(options, what, tmp_path):
    with pytest.raises(RequestError, match=what):
        read(write(tmp_path, SPEC), **options)
