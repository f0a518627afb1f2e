"""What does a queued task cost in memory? Peak memory of the conductor with 100,000 tasks queued, above that with one.

The study is a real one in two forms: a map, and a parameter sweep of a Maestro study. Each has a throttle of one and a first
task that cancels the rest, so that all of them are read, journalled and queued at once.
Key: bytes_per_task (the larger of the two).
"""

from pathlib import Path

from measure import CANTLE, arguments, conclude, peak_mib, scratch, table

TASKS = 100_000
STUDY = """description: {{name: sweep, description: many points}}
study:
    - name: point
      description: one point of $(X)
      run: {{cmd: "touch $(OUTPUT_PATH)/.cancel.lock; sleep 600 # $(X)"}}
global.parameters:
    X: {{values: [{values}], label: X.%%}}
"""


def measured(room: str, tasks: int, form: str) -> float:
    """Peak MiB of a run in which so many tasks are queued."""
    out = f"{room}/{form}-{tasks}"
    if form == "map":
        command = [*CANTLE, "map", f"touch {out}/.cancel.lock; sleep 600", "--range", f"1-{tasks}"]
    else:
        file = Path(room) / f"{tasks}.yaml"
        file.write_text(STUDY.format(values=", ".join(map(str, range(tasks)))))
        command = [*CANTLE, "run", str(file)]
    return peak_mib(["sh", "-c", '"$@"; test $? = 3', "sh", *command, "-t", "1", "-q", "-o", out])


def main() -> None:
    arguments(__doc__)
    rows, figures = [], {}
    with scratch() as room:
        for form in ("map", "study"):
            few, many = measured(room, 1, form), measured(room, TASKS, form)
            figures[form] = (many - few) * 2**20 / TASKS
            rows.append([form, few, many, figures[form]])
    table(["", "MiB with 1 task", f"MiB with {TASKS:,}", "bytes per task"], rows)
    conclude(bytes_per_task=max(figures.values()), map=figures["map"], study=figures["study"])


if __name__ == "__main__":
    main()
