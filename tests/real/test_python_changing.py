"""Do calls run what the program means when it hands them in, also after a cell was run again or a module was loaded anew?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytestmark = pytest.mark.real


def said_by(program: str, where: Path) -> Any:
    """What a program prints last, as JSON."""
    script = where / "program.py"
    script.write_text("import json\nimport cantle\n" + dedent(program))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=where,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path)]), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_a_function_refers_to_may_come_to_stand_for_something_else(tmp_path: Path) -> None:
    program = """
        def helper(x):
            return f"old {x}"

        class Model:
            def value(self):
                return helper("in a method")

        @cantle.task
        def work(x):
            return helper(x), FACTOR * x

        @cantle.task
        def model():
            return Model().value()

        @cantle.task
        def late():
            return defined_later

        def counter():
            number = 0
            def count():
                return number
            def step():
                nonlocal number
                number += 1
            return count, step

        said = []
        with cantle.open(cores=1) as pilot:
            FACTOR = 2
            said += [work.submit(3).result(), model.submit().result(), type(late.submit().exception()).__name__]
            FACTOR = 5
            defined_later = "there"
            said += [work.submit(3).result(), late.submit().result()]
            def helper(x):
                return f"new {x}"
            said += [work.submit(3).result(), model.submit().result()]
            count, step = counter()
            before = pilot.submit(count).result()
            step()
            said.append([before, pilot.submit(count).result()])
            looped = []
            def number():
                return turn
            for turn in range(3):
                looped.append(pilot.submit(number))
            said.append(cantle.gather(looped))
        print(json.dumps(said))
        """
    assert said_by(program, tmp_path) == [
        ["old 3", 6],
        "old in a method",
        "NameError",
        ["old 3", 15],
        "there",
        ["new 3", 15],
        "new in a method",
        [0, 1],
        [0, 1, 2],
    ]


def test_a_worker_keeps_what_a_function_has_changed_as_long_as_the_function_means_the_same(tmp_path: Path) -> None:
    program = """
        SEEN = []

        @cantle.task
        def add(x):
            SEEN.append(x)
            return SEEN

        with cantle.open(cores=1) as pilot:
            print(json.dumps(cantle.gather([add.submit(x) for x in range(3)])))
        """
    assert said_by(program, tmp_path) == [[0], [0, 1], [0, 1, 2]]


def test_a_module_that_the_program_loads_anew_is_loaded_anew_by_workers(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("WORD = 'first'\n\ndef word():\n    return WORD\n")
    (tmp_path / "user.py").write_text("import mine\n\ndef ask():\n    return 'by way of user: ' + mine.word()\n")
    program = """
        import importlib
        import pathlib
        import mine, user

        def through():
            return "through: " + mine.word()

        def all_three():
            return [pilot.submit(mine.word).result(), pilot.submit(user.ask).result(), pilot.submit(through).result()]

        def change(word):
            pathlib.Path("mine.py").write_text(f"WORD = {word!r}\\n\\ndef word():\\n    return WORD\\n")

        with cantle.open(cores=1) as pilot:
            said = [all_three()]
            change("second one")
            said.append(all_three())
            importlib.reload(mine)
            said.append(all_three())
            change("the third")
            import sys
            del sys.modules["mine"]
            import mine
            said.append(all_three())
        print(json.dumps(said))
        """
    assert said_by(program, tmp_path) == [
        ["first", "by way of user: first", "through: first"],
        ["first", "by way of user: first", "through: first"],
        ["second one", "by way of user: second one", "through: second one"],
        ["the third", "by way of user: the third", "through: the third"],
    ]


def test_looking_for_reloads_loads_nothing_that_waits_until_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import builtins\nbuiltins.heavy_was_loaded = True\nWORD = 'there'\n")
    program = """
        import builtins
        import importlib.util
        import sys

        spec = importlib.util.find_spec("heavy")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        heavy = sys.modules["heavy"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(heavy)
        sys.modules["odd"] = 3

        def word():
            return heavy.WORD

        with cantle.open(cores=1) as pilot:
            pilot.submit(abs, -1).result()
            before = hasattr(builtins, "heavy_was_loaded")
            print(json.dumps([before, pilot.submit(word).result()]))
        """
    assert said_by(program, tmp_path) == [False, "there"]


def test_a_module_that_cannot_be_loaded_anew_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def word():\n    return 1\n")
    program = """
        import importlib
        import os
        import mine

        with cantle.open(cores=1) as pilot:
            pilot.submit(mine.word).result()
            importlib.reload(mine)
            os.rename("mine.py", "yours.py")
            print(json.dumps(str(pilot.submit(mine.word).exception())))
        """
    said = said_by(program, tmp_path)
    assert "its function cannot be made on" in said and "mine" in said


def test_what_a_function_cannot_take_along_is_named(tmp_path: Path) -> None:
    program = """
        import sqlite3, threading
        base = sqlite3.connect(":memory:")
        numbers = b"x" * 70_000_000
        small = [1, 2]

        def ask():
            return small, base.execute("select 1")

        def heavy():
            return small, len(numbers)

        def within():
            lock = threading.Lock()
            return lambda: lock

        said = []
        with cantle.open(cores=1) as pilot:
            for function in (ask, within(), heavy):
                try:
                    pilot.submit(function)
                except Exception as error:
                    said.append(getattr(error, "__notes__", [str(error)])[0])
        print(json.dumps(said))
        """
    *unpicklable, heavy = said_by(program, tmp_path)
    assert unpicklable == [
        "The function ask cannot be pickled: it refers to base, a Connection.",
        "The function lambda cannot be pickled: it refers to lock, a lock.",
    ]
    assert heavy.startswith(
        "heavy is 70 MB large, with the values that it refers to (the largest: numbers, a bytes of 70 MB); "
    )


def test_a_function_may_refer_to_what_lets_itself_be_asked_for_nothing(tmp_path: Path) -> None:
    program = """
        def made():
            return 7

        class Shy:
            def __getattribute__(self, name):
                if name in ("__reduce_ex__", "__reduce__"):
                    return lambda *_: (made, ())
                raise RuntimeError(f"nobody asks me for {name}")

        shy = Shy()

        def work():
            return str(shy)

        with cantle.open(cores=1) as pilot:
            try:
                told = pilot.submit(work).result()
            except RuntimeError as error:
                told = [str(error), bool(error.__notes__)]
            print(json.dumps([told, pilot.submit(made).result()]))
        """
    told, made = said_by(program, tmp_path)
    assert made == 7 and told in ("7", ["nobody asks me for __class__", True]), "pickling may ask, but Cantle does not"


def test_functions_with_a_cache_around_them_have_a_cache_at_each_worker(tmp_path: Path) -> None:
    program = """
        import functools
        COMPUTED = []

        @functools.lru_cache(maxsize=3)
        def slow(x):
            COMPUTED.append(x)
            return 2 * x

        @cantle.task
        @functools.cache
        def itself(x):
            return x + 1

        def twice(x):
            return slow(x), slow(x), COMPUTED, slow.cache_parameters(), slow.__name__

        with cantle.open(cores=1) as pilot:
            print(json.dumps([pilot.submit(twice, 4).result(), itself.submit(4).result(), pilot.submit(slow, 5).result()]))
        """
    assert said_by(program, tmp_path) == [[8, 8, [4], {"maxsize": 3, "typed": False}, "slow"], 5, 10]
