"""What failed, why, and how can one try it by hand?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.report.wording import printable

AGAIN = "run it again: "
"""How the last line of an end's detail begins when it says what to type: where there is no script that would say it."""
FAILURES = (Phase.FAILED, Phase.TIMEDOUT)
_INDENT = "    "
_OUTCOMES = {
    "timeout": "it ran into its walltime",
    "memory": "it used more memory than it asked for",
    "unstartable": "it could not be started",
}
"""What to say of an end about which its record says nothing more."""


class Failure(NamedTuple):
    """A task that failed by itself (skipped ones are not counted).

    `reason` is one line, `detail` the last lines of its stderr, `workspace` absolute or "", `again` what to type to run it by
    hand or, where it has no script of its own, to see what it printed.
    """

    task: int
    name: str
    phase: Phase
    reason: str
    detail: list[str]
    workspace: str
    again: str


def failed_tasks(state: State, most: int | None = None) -> list[int]:
    """The tasks that failed or timed out, at most so many of them, in their order."""
    found: list[int] = []
    for task in state.cause_of if most is not None else sorted(state.cause_of):
        if state.phases[task] in FAILURES:
            found.append(task)
            if len(found) == most:
                break
    return found


def failure_of(state: State, task: int, directory: Path | str) -> Failure:
    """What is known of the failure. Looks for the task's script on disk."""
    reason, detail = why(state, task)
    by_hand = next((line.removeprefix(AGAIN) for line in detail if line.startswith(AGAIN)), "")
    detail = printed(detail)
    row = state.tasks[task]
    workspace = str(Path(directory, row.workspace)) if row.workspace else ""
    ended = state.ended.get(task)
    packed = ended is not None and bool(ended.output)
    stream = _stream_of(state, task, reason)
    script = None if packed or not workspace else script_in(workspace, row.name)
    if by_hand:
        again = by_hand
    elif script is None:
        again = f"cantle logs {typed(directory)} {quoted(row.name)}{'' if stream is None else f' --stream {stream}'}"
        if ended is None:
            again = f"cantle explain {typed(directory)} {quoted(row.name)}"
    else:
        as_it_was = ""
        if stream is not None:
            from cantle.runner.wording import as_stream

            step = state.step_of(task)
            as_it_was = "".join(f"{word} " for word in as_stream(stream, step.streams, step.communicates))
        again = f"cd {typed(workspace)} && {as_it_was}{_shell_of(Path(workspace, script))} {quoted(f'./{script}')}"
    # Names of tasks without a workspace are mere numbers; what they stand for is in the parameters.
    name = row.name if workspace or not row.params else f"{row.name} ({row.params})"
    return Failure(task, name, state.phases[task], reason, detail, workspace, again)


def _stream_of(state: State, task: int, reason: str) -> int | None:
    """Which stream of the task failed first; None when it has none, or when none of them was the cause."""
    if not state.step_of(task).streams:
        return None
    from cantle.model.streams import named_in

    return named_in(reason)


def why(state: State, task: int) -> tuple[str, list[str]]:
    """The reason in one line, and the lines that its detail adds."""
    first, *rest = printable(state.cause_of.get(task, "")).split("\n")
    ended = state.ended.get(task)
    if ended is not None and first in ("", ended.outcome):
        first = _OUTCOMES.get(ended.outcome, ended.outcome)
        if ended.outcome == "failed" and (ended.exit_code or ended.signal):
            first = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    return first.rstrip(":") or "no reason is known", [line for line in rest if line.strip()]


def printed(detail: list[str]) -> list[str]:
    """Of a detail's lines those that the task itself printed."""
    return [line for line in detail if not line.startswith(AGAIN)]


def explained(sentence: str) -> Iterator[str]:
    """A sentence of `core.explain` as lines of text: what the task printed is set off from what is said of it."""
    first, *rest = printable(sentence).split("\n")
    yield f"{first.removesuffix(': ')}." if rest and first.endswith(": ") else first
    for line in printed(rest):
        if line.strip():
            yield f"{_INDENT}| {line}"


def failure_lines(failure: Failure) -> Iterator[str]:
    """The failure as lines of text; the first says what failed and why."""
    yield f"{printable(failure.name)}: {failure.reason}"
    for line in failure.detail:
        yield f"{_INDENT}| {line}"
    if failure.workspace and not failure.again.startswith("cd ") and os.path.isdir(failure.workspace):  # noqa: PTH112
        yield f"{_INDENT}workspace: {typed(failure.workspace)}"
    label = "run it again" if failure.again.startswith("cd ") else "see"
    yield f"{_INDENT}{label}: {failure.again}"


def script_in(workspace: str, name: str) -> str | None:
    """The name of the task's script in its workspace, None when there is none of its own."""
    try:
        found = sorted(entry.name for entry in os.scandir(workspace) if entry.name.endswith((".sh", ".sub", ".bsub")))
    except OSError:
        return None
    found = [entry for entry in found if not entry.rpartition(".")[0].endswith(".restart")] or found
    exact = [entry for entry in found if entry.partition(name)[1] and entry.startswith(f"{name}.")]
    candidates = exact or found
    return candidates[0] if len(candidates) == 1 else None


def typed(path: Path | str) -> str:
    """The path as one would type it here: relative when it lies below the current directory, quoted where needed."""
    text = os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps `..`
    here = os.getcwd()  # noqa: PTH109
    if text == here:
        return "."
    if text.startswith(here.rstrip("/") + "/"):
        text = text[len(here.rstrip("/")) + 1 :]
    return quoted(text)


def quoted(word: str) -> str:
    """The word as a shell takes it. Characters that a terminal would act on are written as their numbers."""
    if word.isprintable():
        from shlex import quote

        return quote(word)
    from cantle.runner.wording import in_dollar_quotes

    return in_dollar_quotes(word)


def _shell_of(script: Path) -> str:
    """What the script's first line asks to be run by."""
    try:
        with open(script, "rb") as file:
            first = file.readline(256)
    except OSError:
        first = b""
    if first.startswith(b"#!"):
        return first[2:].decode(errors="replace").strip() or "/bin/sh"
    return "/bin/sh"
