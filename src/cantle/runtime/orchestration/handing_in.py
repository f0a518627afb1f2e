"""How is a job handed in, the first one and those that follow it?"""

from __future__ import annotations

import os
import shlex
from time import time

from msgspec.structs import replace

from cantle.allocations.submission.base import BatchSystem
from cantle.errors import MachineError
from cantle.store.failures import in_words

from .records import Asked, Jobs, Submitted


def hand_in(
    jobs: Jobs,
    system: BatchSystem,
    number: int,
    *,
    after: str = "",
    retry: bool = False,
    chain: int = 0,
    resumed: int = 0,
) -> bool:
    """Submit the job of this number, as asked; False when somebody else does or did. The rest is as in `Submitted`.

    Raises RequestError when the batch system refuses it, MachineError when that cannot be asked; then nothing is left of it.
    """
    asked = jobs.asked()
    if not jobs.claim(number):
        return False
    try:
        script, output = jobs.script(number), jobs.output(number)
        followed = number - (chain or number) + 1 < asked.most_jobs
        job = replace(asked.job, script=str(script), output=str(output), once=followed)
        try:
            output.parent.mkdir(exist_ok=True)
            script.write_text(text_of(asked, jobs, number))
            script.chmod(0o700)
        except OSError as error:
            raise MachineError(f"cannot write {error.filename or script}: {in_words(error)}") from error
        ident = system.submit(job, after)
    except BaseException:
        jobs.give_back(number)
        raise
    jobs.submitted(Submitted(number, ident, time(), os.uname().nodename, retry, chain or number, resumed))
    return True


def text_of(asked: Asked, jobs: Jobs, number: int) -> str:
    """The job's script.

    A conductor takes the shell's place, so that the batch system's signals reach it. A command is waited for by the shell,
    which a TERM does not end, so that its status is written down.
    """
    python = shlex.quote(asked.python)
    lines = ["#!/bin/bash", f"cd {shlex.quote(asked.job.directory)} || exit 1"]
    inside = f"{python} -m cantle orchestrate --inside {number} {shlex.quote(str(jobs.layout.directory))}"
    if not asked.command:
        return "\n".join([*lines, f"exec {inside}", ""])
    began = shlex.quote(str(jobs.folder / f"{number}.began.json"))
    ended = shlex.quote(str(jobs.folder / f"{number}.ended.json"))
    return "\n".join(
        [
            *lines,
            "trap : TERM INT USR1 USR2",
            f"""printf '{{"time": %s, "host": "%s", "pid": %s}}\\n' "$(date +%s)" "$(uname -n)" $$ > {began}""",
            f"rm -f {ended}",
            shlex.join(asked.command),
            "status=$?",
            f"""printf '{{"time": %s, "status": %s}}\\n' "$(date +%s)" $status > {ended}.new && mv {ended}.new {ended}""",
            "exit $status",
            "",
        ]
    )
