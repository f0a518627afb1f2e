"""The conformance checks find what they are there to find: each plug-in here breaks one promise, and is told which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import replace

from cantle.core.packing import best_fit, find_places
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.errors import MachineError, Problem, RequestError, StudyError
from cantle.model.records import Stop
from cantle.model.resources import Needs, Place
from cantle.model.study import Command, Step, Study, Task
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader
from cantle.readers.map import MapReader, build
from cantle.readers.values import from_ranges
from cantle.testing import check_packer, check_reader, packers

SPECS = Path(__file__).parent / "front" / "specs"

# Readers


class Words:
    """A sound reader, the base of the unsound ones: a file of words, each of which is a task that says it."""

    name = "words"

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".words"

    def read(self, path: Path, options: ReadOptions) -> Study:
        try:
            text = path.read_text()
        except (OSError, ValueError) as problem:
            raise RequestError(f"{path}: {problem}") from problem
        if "!" in text:
            raise StudyError([Problem(str(path), 1, "", "a word ends in !")])
        return self.study(text)

    def reopen(self, folder: Path) -> Study:
        return self.study((folder / "text").read_text())

    def study(self, text: str) -> Study:
        words = text.split()
        tasks = [Task(word, 0, tuple(range(n)), workspace=word) for n, word in enumerate(words)]
        return Study(
            "words", [Step("say", restartable=True)], tasks, lambda _: Say(words), {"text": text.encode()}, text
        )


class Say:
    def __init__(self, words: list[str]) -> None:
        self.words = words

    def prepare(self, directory: str) -> None:
        (Path(directory) / "prepared").touch()

    def command(self, task: int, attempt: int, restart: bool, places: Any, nodes: Any) -> Command:
        return Command(argv=("echo", self.words[task]), output_stem=self.words[task])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.words"
    path.write_text("one two three")
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.words"
    path.write_text("one!")
    return path


def test_a_sound_reader_passes(good: Path, bad: Path) -> None:
    check_reader(Words, [good], [bad])


def test_the_maestro_reader_keeps_its_promises(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("description: {name: x, description: y}\nstudy:\n  - name: a\n    run: {cmd: [}\n")
    worse = tmp_path / "worse.yaml"
    worse.write_text("description: {name: x}\nstudy:\n  - name: a\n    run: {cmd: echo, depends: [b]}\n")
    files = [SPECS / f"{name}.yaml" for name in ("levels", "launchers", "greet-each", "chain")]
    check_reader(MaestroReader, files, [bad, worse], ReadOptions(launcher="slurm"))


def with_task(number: int, **changed: Any) -> type[Words]:
    """A reader whose study has one task changed."""

    class Changed(Words):
        def study(self, text: str) -> Study:
            study = super().study(text)
            study.tasks[number] = replace(study.tasks[number], **changed)
            return study

    return Changed


def with_step(step: Step) -> type[Words]:
    class Changed(Words):
        def study(self, text: str) -> Study:
            return replace(super().study(text), steps=[step])

    return Changed


def with_study(**changed: Any) -> type[Words]:
    class Changed(Words):
        def study(self, text: str) -> Study:
            return replace(super().study(text), **changed)

    return Changed


def with_command(command: Callable[[int, Any], Command]) -> type[Words]:
    class Work:
        def command(self, task: int, attempt: int, restart: bool, places: Any, nodes: Any) -> Command:
            return command(task, places)

    return with_study(work=lambda _: Work())


class Blind(Words):
    def recognises(self, path: Path) -> bool:
        return False


class Greedy(Words):
    def recognises(self, path: Path) -> bool:
        return True


class Touchy(Words):
    def recognises(self, path: Path) -> bool:
        return bool(path.read_text())


class Forgetful(Words):
    def reopen(self, folder: Path) -> Study:
        return self.study("one two")


class Restless(Words):
    reads = 0

    def read(self, path: Path, options: ReadOptions) -> Study:
        Restless.reads += 1
        study = super().read(path, options)
        return replace(study, digest=f"{study.digest}{Restless.reads}")


class Elsewhere(Words):
    """Its `reopen` reads where the user stood when the run was begun."""

    def reopen(self, folder: Path) -> Study:
        return self.study(Path("good.words").read_text())


class Changing(Words):
    """Its commands depend on how often any was asked for."""

    asked: ClassVar[list[int]] = []

    def study(self, text: str) -> Study:
        class Work(Say):
            def command(self, task: int, *rest: Any) -> Command:
                Changing.asked.append(task)
                return Command(argv=("echo", str(len(Changing.asked))), packed=True)

        study = super().study(text)
        work = Work(text.split())
        return replace(study, work=lambda _: work)


class Tired(Words):
    """What it fetched is in its way the next time."""

    def study(self, text: str) -> Study:
        class Work(Say):
            def prepare(self, directory: str) -> None:
                (Path(directory) / "fetched").mkdir()

        work = Work(text.split())
        return replace(super().study(text), work=lambda _: work)


class Mute(Words):
    def read(self, path: Path, options: ReadOptions) -> Study:
        raise ValueError("what is this?")


UNSOUND: dict[str, tuple[type[Words], str]] = {
    "blind": (Blind, "is recognised"),
    "greedy": (Greedy, "a file of bytes without meaning is recognised by nobody"),
    "touchy": (Touchy, "`recognises` answers"),
    "mute": (Mute, "is good, but reading it raised ValueError: what is this?"),
    "restless": (Restless, "read twice, has the same digest"),
    "forgetful": (Forgetful, "reopened from what was kept, has 3 tasks, not 2"),
    "elsewhere": (Elsewhere, "`reopen` with what `keep` asked for raised FileNotFoundError"),
    "nothing kept": (with_study(keep={}), "`reopen` with what `keep` asked for raised FileNotFoundError"),
    "keeps above": (with_study(keep={"../text": b""}), "`keep` names files relative to its folder, not '../text'"),
    "no name": (with_study(name=""), "a study has a name"),
    "no digest": (with_study(digest=""), "a study has a digest"),
    "no tasks": (with_study(tasks=[]), "a good file makes one task at least"),
    "a cycle": (with_task(1, parents=(1,)), "parents come before their children, but 1 is no number below 1"),
    "after a later one": (with_task(0, after=(2,)), "parents come before their children, but 2 is no number below 0"),
    "a negative parent": (with_task(1, parents=(-1,)), "but -1 is no number below 1"),
    "a parent twice": (with_task(1, parents=(0, 0)), "a parent is named twice"),
    "parent and after": (with_task(1, after=(0,)), "[0] stand in `parents` and in `after`"),
    "no such step": (with_task(2, step=1), "task 2, 'three': step 1 of 1"),
    "a name twice": (with_task(2, name="one"), "each task has a name of its own"),
    "an absolute workspace": (with_task(0, workspace="/tmp/x"), "lies in the run's directory, not /tmp/x"),
    "a workspace above": (with_task(0, workspace="x/../../y"), "lies in the run's directory"),
    "a shared workspace": (with_task(1, workspace="./one"), "its workspace ./one is also that of 'one'"),
    "a negative estimate": (with_task(1, estimate_s=-1.0), "an estimate is not negative"),
    "a number for a name": (with_task(1, name=7), "can be written into the journal and read again"),
    "no cores": (with_step(Step("say", Needs(cores=0))), "needs one core on one node at least"),
    "unsorted needs": (with_step(Step("say", Needs(named=(("b", 1), ("a", 1))))), "named needs are sorted"),
    "no place for output": (with_command(lambda *_: Command(argv=("true",))), "says where its output goes"),
    "nothing to run": (with_command(lambda *_: Command(packed=True)), "has either `argv`, or `shell` and a script"),
    "a NUL": (with_command(lambda *_: Command(argv=("\0",), packed=True)), "no process can be started with a NUL"),
    "no script path": (with_command(lambda *_: Command(shell=("sh",), packed=True)), "needs a `script_path`"),
    "one script for all": (
        with_command(lambda *_: Command(shell=("sh",), script_path="x.sh", packed=True)),
        "its script x.sh is also that of task 0",
    ),
    "needs a place": (
        with_command(lambda _, places: Command(argv=(places[0].cores,), packed=True)),
        "raised IndexError: tuple index out of range (places may be (): a dry run has none)",
    ),
    "lone surrogates": (with_command(lambda *_: Command(argv=("\ud800",), packed=True)), "can be sent to a runner"),
    "prepares once": (Tired, "the second call of `prepare` raised FileExistsError"),
    "prepares nothing": (with_command(lambda *_: Command(argv=("true",), packed=True)), "the first call of `prepare`"),
    "changing commands": (Changing, "makes the same commands"),
}


@pytest.mark.parametrize("what", UNSOUND)
def test_a_reader_that_breaks_a_promise_is_told_which(what: str, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(good.parent)
    reader, told = UNSOUND[what]
    with pytest.raises(AssertionError) as caught:
        check_reader(reader, [good])
    assert told in str(caught.value)


BAD_ENDINGS: dict[str, tuple[BaseException | None, str]] = {
    "no error": (None, "something is wrong with it, but it was read without an error"),
    "a bug": (KeyError("steps"), "what is wrong is told, not raised as KeyError: 'steps'"),
    "another's fault": (MachineError("disk"), "is a StudyError or a RequestError, not MachineError: disk"),
    "no problem": (StudyError([]), "a StudyError carries the problems"),
    "no place": (StudyError([Problem("bad.words", 0, "", "bad")]), "a problem names its line or key: bad.words: bad"),
    "no file": (StudyError([Problem("", 1, "", "bad")]), "a problem names its file"),
    "no words": (StudyError([Problem("bad.words", 1, "", "")]), "a problem says what is wrong"),
    "no file in a request": (RequestError("it is bad"), "a RequestError names the file: it is bad"),
}


@pytest.mark.parametrize("what", BAD_ENDINGS)
def test_a_reader_has_to_say_what_is_wrong_and_where(what: str, good: Path, bad: Path) -> None:
    problem, told = BAD_ENDINGS[what]

    class Reader(Words):
        def read(self, path: Path, options: ReadOptions) -> Study:
            if path.name != "bad.words":
                return super().read(path, options)
            if problem is not None:
                raise problem
            return self.study("fine")

    with pytest.raises(AssertionError) as caught:
        check_reader(Reader, [good], [bad])
    assert told in str(caught.value)


def test_the_reader_of_maps_keeps_its_promises(tmp_path: Path) -> None:
    study = build("echo {}", from_ranges(["1-6"]))
    (tmp_path / "empty").mkdir()
    for name, content in study.keep.items():
        (tmp_path / name).write_bytes(content)
    check_reader(MapReader, [tmp_path / "map.json"], [tmp_path / "empty" / "map.json"])


def test_a_reader_has_to_tell_of_a_missing_file(good: Path) -> None:
    class Reader(Words):
        def read(self, path: Path, options: ReadOptions) -> Study:
            return self.study(path.read_text())

    with pytest.raises(AssertionError, match=r"missing\.words: what is wrong is told, not raised as FileNotFoundError"):
        check_reader(Reader, [good])


# Packers


def overlapping(plan: Plan) -> Iterator[Any]:
    """Gives each task the first cores of the first node that is large enough, free or not."""
    for queue in plan.by_urgency():
        task, needs = queue.head(), queue.shape.needs
        for index, node in plan.room.nodes.items():
            if task is not None and node.cores >= needs.cores and needs.nodes == 1 and plan.may_launch(queue):
                yield plan.launch(task, (Place(index, f"0-{needs.cores - 1}"),))
                break


def without_a_throttle(plan: Plan) -> Iterator[Any]:
    for queue in plan.by_urgency():
        task, places = queue.head(), find_places(plan.room, queue.shape.needs)
        if task is not None and places:
            yield plan.launch(task, places)


def half_gangs(plan: Plan) -> Iterator[Any]:
    for launch in best_fit(plan):
        assert not isinstance(launch, Stop)
        yield msgspec.structs.replace(launch, on=launch.on[:1])  # type: ignore[type-var]


def only_narrow_ones(plan: Plan) -> Iterator[Any]:
    for queue in plan.by_urgency():
        task, places = queue.head(), find_places(plan.room, queue.shape.needs)
        if task is not None and places and plan.may_launch(queue) and queue.shape.needs.cores < 3:
            yield plan.launch(task, places)


def never_satisfied(plan: Plan) -> Iterator[Any]:
    """Stops whatever runs, whenever something else might."""
    state = plan.state
    for task, launch in list(state.running.items()):
        if state.totals[Phase.READY] and not state.being_stopped:
            yield Stop(state.now, task, launch.attempt, "interrupted")
    yield from best_fit(plan)


def cancelling(plan: Plan) -> Iterator[Any]:
    for launch in best_fit(plan):
        yield launch
        yield Stop(plan.state.now, launch.task, plan.state.attempts[launch.task], "canceled")


def lost_in_thought(plan: Plan) -> Iterator[Any]:
    while True:
        try:
            sum(range(100))
        except Exception:  # noqa: BLE001 - as careless packers have it
            pass
    yield


def lost_before_the_first_step(plan: Plan) -> list[Any]:
    while True:
        sum(range(100))


def with_its_own_books(plan: Plan) -> Iterator[Any]:
    for launch in best_fit(plan):
        yield launch
        plan.room.free_cores[0] = 0


@pytest.mark.parametrize(
    ("packer", "told"),
    [
        (overlapping, "it launched task"),
        (without_a_throttle, r"no more may \(throttle\)"),
        (half_gangs, "on 1 place, but it needs"),
        (only_narrow_ones, "it launches nothing, although nothing runs and"),
        (never_satisfied, "turns .* tasks are still not done"),
        (cancelling, "in the end task.* is canceled, although there were nodes for it"),
        (with_its_own_books, "it changed what it may only read; invariant broken"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_packer_that_breaks_a_rule_is_told_which_and_in_which_run(packer: Any, told: str) -> None:
    with pytest.raises(AssertionError, match=told) as caught:
        check_packer(packer)
    assert str(caught.value).startswith(f"packer test_conformance:{packer.__name__}: ")
    assert "runs=1]" in str(caught.value), "the run can be repeated alone"


@pytest.mark.parametrize("packer", [lost_in_thought, lost_before_the_first_step])
def test_a_packer_that_never_comes_back_is_ended(packer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packers, "STEP_CPU_S", 0.1)
    with pytest.raises(
        AssertionError, match=r"computed for 0\.1 s without a decision \(test_conformance\.py, line \d+\)"
    ):
        check_packer(packer)


def test_a_fault_can_be_found_again_by_its_seed() -> None:
    with pytest.raises(AssertionError, match=r"seed=(\d+), runs=1\]") as caught:
        check_packer(only_narrow_ones)
    seed = int(str(caught.value).rpartition("seed=")[2].partition(",")[0])
    with pytest.raises(AssertionError) as again:
        check_packer(only_narrow_ones, seed=seed, runs=1)
    assert str(again.value) == str(caught.value)
