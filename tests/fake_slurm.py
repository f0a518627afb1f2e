"""A small Slurm: `sbatch`, `squeue`, `scancel`, `sinfo`, `sacct` that keep their jobs in a folder and run them as processes.

`main` is all of these commands; `install` puts them on a PATH. A minute of walltime lasts `FAKE_MINUTE_S` seconds. What it
refuses, answers and forgets is what Slurm 22.05 was seen to refuse, answer and forget. The time counts from the first thing
that a job prints, so that tests do not hang on how long an interpreter takes to start. Each job is watched by a process of its
own, which waits for what it depends on, runs the script, and ends it at its time as Slurm does: TERM, then KILL.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
KILL_WAIT_S = 2.0


def install(folder: Path) -> Path:
    """Make the commands; returns the directory for the PATH."""
    bin_ = folder / "bin"
    bin_.mkdir(parents=True)
    (folder / "jobs").mkdir()
    for name in ("sbatch", "squeue", "scancel", "sinfo", "sacct"):
        path = bin_ / name
        path.write_text(f'#!/bin/sh\nFAKE_SLURM={folder} exec {sys.executable} -S {__file__} {name} "$@"\n')
        path.chmod(0o755)
    return bin_


def _home() -> Path:
    return Path(os.environ["FAKE_SLURM"])


def _path(ident: str) -> Path:
    return _home() / "jobs" / f"{ident}.json"


def _get(ident: str) -> dict[str, Any]:
    for _ in range(50):
        try:
            found: dict[str, Any] = json.loads(_path(ident).read_text())
            return found
        except FileNotFoundError:
            raise
        except ValueError:
            time.sleep(0.01)
    raise ValueError(ident)


def _put(job: dict[str, Any]) -> None:
    beside = _path(job["id"]).with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(job))
    beside.rename(_path(job["id"]))


def _change(ident: str, **more: Any) -> None:
    _put({**_get(ident), **more})


def sbatch(words: list[str]) -> int:
    with open(_home() / "asked", "a") as log:
        log.write(json.dumps(["sbatch", *words]) + "\n")
    options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    script = next(word for word in words if not word.startswith("--"))
    if options.get("partition") == "nosuch":
        print("sbatch: error: invalid partition specified: nosuch", file=sys.stderr)
        print("sbatch: error: Batch job submission failed: Invalid partition name specified", file=sys.stderr)
        return 1
    if (_home() / "refuse-inside").exists() and "SLURM_JOB_ID" in os.environ.get("FAKE_WHERE", ""):
        print("sbatch: error: Access/permission denied", file=sys.stderr)
        return 1
    numbers = [int(path.stem) for path in (_home() / "jobs").glob("*.json")]
    ident = str(max(numbers, default=16) + 1)
    job = {"id": ident, "state": "PENDING", "reason": "None", "options": options, "script": script}
    _put({**job, "text": Path(script).read_text()})
    with open(os.devnull, "r+b") as null:
        subprocess.Popen(
            [sys.executable, "-S", __file__, "watch", ident],
            stdin=null, stdout=null, stderr=null, start_new_session=True,
        )  # fmt: skip
    print(ident)
    return 0


def watch(words: list[str]) -> int:
    """A job's life."""
    (ident,) = words
    options = _get(ident)["options"]
    after = options.get("dependency", "").removeprefix("afterany:")
    while True:
        job = _get(ident)
        if job["state"] == "CANCELLED":
            return 0
        if after and _get(after)["state"] not in OVER:
            _reason(job, "Dependency")
        elif (_home() / "hold").exists():
            _reason(job, "Resources")
        else:
            break
        time.sleep(0.05)
    env = {**os.environ, "SLURM_JOB_ID": ident, "FAKE_WHERE": "SLURM_JOB_ID"}
    out = options["output"].replace("%%", "%")
    with open(os.devnull, "rb") as null, open(out, "ab") as file:
        process = subprocess.Popen(
            ["/bin/bash", "-c", job["text"]], cwd=options["chdir"], stdin=null, stdout=file, stderr=file, env=env,
            start_new_session=True,
        )  # fmt: skip
    _change(ident, state="RUNNING", reason="None", pid=process.pid)
    began = time.monotonic()
    while process.poll() is None and not Path(out).stat().st_size and time.monotonic() < began + 60:
        time.sleep(0.02)
    limit = float(os.environ.get("FAKE_MINUTE_S", 60)) * float(options.get("time", 60))
    try:
        code = process.wait(limit)
        state = "COMPLETED" if code == 0 else "FAILED"
    except subprocess.TimeoutExpired:
        state = "TIMEOUT"
        _end(process)
    if _get(ident)["state"] == "CANCELLED" or _get(ident).get("canceled"):
        state = "CANCELLED"
    _change(ident, state=state, reason="NonZeroExitCode" if state == "FAILED" else "None")
    return 0


def _reason(job: dict[str, Any], reason: str) -> None:
    if job["reason"] != reason:
        _change(job["id"], reason=reason)


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def squeue(words: list[str]) -> int:
    with open(_home() / "asked", "a") as log:
        log.write(json.dumps(["squeue", *words]) + "\n")
    options = dict(word[2:].partition("=")[::2] for word in words)
    if "name" in options:
        jobs = [_get(path.stem) for path in sorted((_home() / "jobs").glob("*.json"))]
        mine = [job for job in jobs if job["options"].get("job-name") == options["name"] and job["state"] not in OVER]
        print("\n".join(job["id"] for job in mine))
        return 0
    try:
        job = _get(options["jobs"])
    except FileNotFoundError:
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    print(f"{job['state']}|N/A|{job['reason']}")
    return 0


def scancel(words: list[str]) -> int:
    (ident,) = words
    try:
        job = _get(ident)
    except FileNotFoundError:
        print(f"scancel: error: Kill job error on job id {ident}: Invalid job id specified", file=sys.stderr)
        return 1
    if job["state"] == "RUNNING":
        _change(ident, canceled=True)
        os.killpg(job["pid"], signal.SIGTERM)
    elif job["state"] not in OVER:
        _change(ident, state="CANCELLED")
    return 0


def sinfo(words: list[str]) -> int:
    rows = {"main": "main*|8|4|gpu:2|infinite", "short": "short|2|4|(null)|30:00"}
    wanted = [word.partition("=")[2] for word in words if word.startswith("--partition=")]
    print("\n".join(row for name, row in rows.items() if not wanted or name in wanted))
    return 0


def sacct(words: list[str]) -> int:
    print("Slurm accounting storage is disabled", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
