"""A sweep from Python: its functions are tasks, on four nodes with two cores each."""

import cantle


@cantle.task(cores=1)
def simulate(x: float) -> float:
    return x * (10 - x)


@cantle.task(cores=2, retries=1)
def refine(x: float, value: float) -> tuple[float, float]:
    return x, value + 0.5


@cantle.task
def best(found: list[tuple[float, float]]) -> tuple[float, float]:
    return max(found, key=lambda each: each[1])


if __name__ == "__main__":
    grid = [n / 2 for n in range(20)]
    with cantle.open(nodes="4x2", directory="sweep-run") as pilot:
        runs = {x: simulate.submit(x) for x in grid}
        winner = best.submit([refine.submit(x, run) for x, run in runs.items()])
        print("at most", max(cantle.gather(runs.values())))
        print("best", winner.result())
        print("through an executor", list(pilot.executor().map(pow, [2, 3], [3, 2])))
    for step, counts in sorted(pilot.tally().items()):
        print(step, counts)
