"""Does a reader keep its promises? It is tried on files that it should read, and on files that it should object to.

def test_my_reader_keeps_its_promises():
    check_reader(MyReader, good=["study.mine"], bad=["broken.mine"])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TypeVar

import msgspec

from cantle.errors import CantleError, RequestError, StudyError
from cantle.model.records import StudyAdded, TasksAdded
from cantle.model.resources import Needs, Node, Place, mask_to_list
from cantle.model.study import Command, Step, Study, Task
from cantle.readers.base import Reader, ReadOptions

MakeReader = Callable[[], Reader]
R = TypeVar("R", StudyAdded, TasksAdded)

DIRECTORY = "/nowhere/out"
"""The run's directory for which commands are made; a reader must not look into it."""


def check_reader(
    make_reader: MakeReader,
    good: Sequence[Path | str],
    bad: Sequence[Path | str] = (),
    options: ReadOptions | None = None,
) -> None:
    """Check a reader on `good` files, which hold studies, and `bad` ones, in which something is wrong.

    Good ones are recognised and read, twice with the same result; the study is consistent; a command can be made for
    each task, also before `prepare`, which may be called twice; what `keep` asks for is enough to make the same study
    again, anywhere. Bad ones, and a file that is not there, raise StudyError with the place of each problem, or
    RequestError.
    """
    assert good, "give check_reader one good file at least"
    options = options or ReadOptions()
    reader = make_reader()
    assert isinstance(reader.name, str) and reader.name, "a reader has a name"
    with TemporaryDirectory() as folder:
        place = Path(folder)
        for file in map(Path, good):
            assert reader.recognises(file) is True, f"{file} is recognised"
            _check_good(make_reader, file, options, place)
        _check_recognises_no_nonsense(reader, {Path(file).suffix for file in good}, place)
        for file in (*map(Path, bad), place / f"missing{Path(good[0]).suffix}"):
            _check_bad(make_reader(), file, options)


def _check_good(make_reader: MakeReader, file: Path, options: ReadOptions, place: Path) -> None:
    try:
        study = make_reader().read(file, options)
        again = make_reader().read(file, options)
    except Exception as problem:
        raise AssertionError(f"{file} is good, but reading it raised {_told(problem)}") from problem
    _check_plan_half(study, file)
    commands = _commands(study, file)
    _check_prepare(study, file, place)
    _check_same(again, study, commands, f"{file}, read twice")
    kept, elsewhere = Path(mkdtemp(dir=place)), Path(mkdtemp(dir=place))
    for name, content in study.keep.items():
        assert _stays_inside(name) and name, f"{file}: `keep` names files relative to its folder, not {name!r}"
        path = kept / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with chdir(elsewhere):  # a run is resumed from wherever its user stands
        try:
            reopened = make_reader().reopen(kept)
        except Exception as problem:
            raise AssertionError(f"{file}: `reopen` with what `keep` asked for raised {_told(problem)}") from problem
        _check_same(reopened, study, commands, f"{file}, reopened from what was kept")


def _check_plan_half(study: Study, file: Path) -> None:
    assert study.name and "/" not in study.name, (
        f"{file}: a study has a name, which can name a directory: {study.name!r}"
    )
    assert study.digest, f"{file}: a study has a digest, which tells whether two are the same"
    assert study.tasks, f"{file}: a good file makes one task at least"
    _check_written_down(StudyAdded(0.0, study.name, study.steps, limits=study.limits, digest=study.digest), file)
    _check_written_down(TasksAdded(0.0, 0, study.tasks), file)
    for step in study.steps:
        _check_step(step, file)
    names: set[str] = set()
    workspaces: dict[str, str] = {}
    for number, task in enumerate(study.tasks):
        where = f"{file}: task {number}, {task.name!r}"
        assert task.name and task.name not in names, f"{where}: each task has a name of its own"
        names.add(task.name)
        assert 0 <= task.step < len(study.steps), f"{where}: step {task.step} of {len(study.steps)}"
        assert task.estimate_s >= 0, f"{where}: an estimate is not negative, 0 where nobody knows"
        _check_parents(task, number, where)
        if task.workspace:
            assert _stays_inside(task.workspace), (
                f"{where}: its workspace lies in the run's directory, not {task.workspace}"
            )
            owner = workspaces.setdefault(os.path.normpath(task.workspace), task.name)
            assert owner == task.name, f"{where}: its workspace {task.workspace} is also that of {owner!r}"


def _check_step(step: Step, file: Path) -> None:
    where = f"{file}: step {step.name!r}"
    assert step.name, f"{where}: a step has a name"
    needs = step.needs
    assert needs.cores >= 1 and needs.nodes >= 1, f"{where}: needs one core on one node at least, not {needs}"
    assert needs.gpus >= 0 and needs.memory_mib >= 0, f"{where}: needs nothing negative: {needs}"
    assert list(needs.named) == sorted(dict(needs.named).items()), f"{where}: named needs are sorted and each once"
    assert step.walltime_s >= 0 and step.retries >= 0, f"{where}: walltime and retries are not negative, 0 for none"


def _check_parents(task: Task, number: int, where: str) -> None:
    for waits_for in (task.parents, task.after):
        assert len(set(waits_for)) == len(waits_for), f"{where}: a parent is named twice: {waits_for}"
        for parent in waits_for:
            assert 0 <= parent < number, (
                f"{where}: parents come before their children, but {parent} is no number below {number}"
            )
    both = set(task.parents) & set(task.after)
    assert not both, f"{where}: {sorted(both)} stand in `parents` and in `after`; `parents` says more"


def _check_written_down(record: R, file: Path) -> None:
    """What stands in the journal is what the reader gave: types are as declared, and all text can be encoded."""
    try:
        read = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    except (TypeError, ValueError, msgspec.MsgspecError) as problem:
        raise AssertionError(
            f"{file}: steps and tasks can be written into the journal and read again: {problem}"
        ) from None
    assert read == record, (
        f"{file}: steps and tasks are the same after they were written into the journal and read again"
    )


def _commands(study: Study, file: Path) -> list[Command]:
    """All commands of the study; each is looked at."""
    work = study.work(DIRECTORY)
    found = []
    scripts: dict[str, int] = {}
    for number, task in enumerate(study.tasks):
        step = study.steps[task.step]
        for restart in (False, True) if step.restartable else (False,):
            where = f"{file}: the {'restart ' if restart else ''}command of task {number}, {task.name!r}"
            places, nodes = _placed(step.needs)
            try:
                command = work.command(number, 1, restart, places, nodes)
                unplaced = work.command(number, 1, restart, (), ())
            except Exception as problem:
                hint = "places may be (): a dry run has none"
                raise AssertionError(f"{where} cannot be made: it raised {_told(problem)} ({hint})") from problem
            for made in (command, unplaced):
                _check_command(made, where)
            if command.script_path:
                owner = scripts.setdefault(command.script_path, number)
                assert owner == number, f"{where}: its script {command.script_path} is also that of task {owner}"
            found += [command, unplaced]
    return found


def _check_prepare(study: Study, file: Path, place: Path) -> None:
    directory = mkdtemp(dir=place)
    for which in ("first", "second"):
        try:
            study.work(directory).prepare(directory)
        except Exception as problem:
            raise AssertionError(f"{file}: the {which} call of `prepare` raised {_told(problem)}") from problem


def _check_command(command: Command, where: str) -> None:
    assert bool(command.argv) != bool(command.shell), f"{where} has either `argv`, or `shell` and a script"
    if command.shell:
        assert command.script_path, f"{where} has a script, so it needs a `script_path` to be written to"
    assert command.packed or command.output_stem, f"{where} says where its output goes: `output_stem`, or `packed`"
    for word in command.argv:
        assert "\0" not in word, f"{where}: no process can be started with a NUL in an argument: {word!r}"
    try:
        same = msgspec.json.decode(msgspec.json.encode(command), type=Command) == command
    except (TypeError, ValueError, msgspec.MsgspecError) as problem:
        raise AssertionError(f"{where} can be sent to a runner: {problem}") from None
    assert same, f"{where} arrives at a runner as it was sent"


def _placed(needs: Needs) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
    """Places as a task with these needs would get them."""
    cores, gpus = mask_to_list((1 << needs.cores) - 1), mask_to_list((1 << needs.gpus) - 1)
    places = tuple(Place(index, cores, gpus) for index in range(needs.nodes))
    nodes = tuple(
        Node(f"node{i}", needs.cores, needs.gpus, needs.memory_mib, needs.named, needs.kind, f"machine{i}")
        for i in range(needs.nodes)
    )
    return places, nodes


def _check_same(other: Study, study: Study, commands: list[Command], how: str) -> None:
    assert other.name == study.name, f"{how}, has the same name: {other.name!r}, {study.name!r}"
    assert len(other.tasks) == len(study.tasks), f"{how}, has {len(study.tasks)} tasks, not {len(other.tasks)}"
    for number, (then, now) in enumerate(zip(study.tasks, other.tasks, strict=True)):
        assert now == then, f"{how}, has the same tasks, but task {number} is {now} instead of {then}"
    assert other.steps == study.steps, f"{how}, has the same steps"
    assert other.digest == study.digest, f"{how}, has the same digest"
    made = _commands(other, Path(how))
    for then_runs, now_runs in zip(commands, made, strict=True):
        assert now_runs == then_runs, f"{how}, makes the same commands, but {now_runs} instead of {then_runs}"


def _check_recognises_no_nonsense(reader: Reader, suffixes: set[str], place: Path) -> None:
    """Each reader is asked about files of others: it answers, whatever they hold."""
    strange = [place / f"nonsense{suffix}" for suffix in sorted(suffixes)] + [place / "nonsense.bin", place / "missing"]
    for file in strange[:-1]:
        file.write_bytes(b"\xff\xfe\0\x80 no study")
    for file in strange:
        try:
            answer = reader.recognises(file)
        except Exception as problem:
            raise AssertionError(f"`recognises` answers for any file, but raised {_told(problem)}") from problem
        assert isinstance(answer, bool), f"`recognises` answers with True or False, not {answer!r}"
    assert not reader.recognises(place / "nonsense.bin"), "a file of bytes without meaning is recognised by nobody"


def _check_bad(reader: Reader, file: Path, options: ReadOptions) -> None:
    try:
        reader.read(file, options)
    except StudyError as told:
        assert told.problems, f"{file}: a StudyError carries the problems"
        for problem in told.problems:
            assert problem.file, f"{file}: a problem names its file: {problem}"
            assert problem.what, f"{file}: a problem says what is wrong: {problem}"
            assert problem.line or problem.key, f"{file}: a problem names its line or key: {problem}"
    except RequestError as told:
        assert file.name in str(told) or str(file.parent) in str(told), f"{file}: a RequestError names the file: {told}"
    except CantleError as told:
        raise AssertionError(f"{file}: what is wrong is a StudyError or a RequestError, not {_told(told)}") from told
    except Exception as problem:
        raise AssertionError(f"{file}: what is wrong is told, not raised as {_told(problem)}") from problem
    else:
        raise AssertionError(f"{file}: something is wrong with it, but it was read without an error")


def _stays_inside(path: str) -> bool:
    return not path.startswith("/") and os.path.normpath(path).partition("/")[0] != ".."


def _told(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"
