"""In which order can the steps run, and what does each wait for?

Steps may be listed in any order. A step that names another's workspace without depending on it, not even by way of others,
gets that dependency: its directory would otherwise be empty or half full. Circles are told with the whole way round.
"""

from __future__ import annotations

from .findings import Findings, did_you_mean
from .steps import Dependence, StepPlan


def in_order(plans: list[StepPlan], findings: Findings) -> list[StepPlan]:
    """The steps, each after all that it waits for and otherwise as listed; implied dependencies are added to them.

    Empty, with the problems noted, when names are missing or steps wait in a circle.
    """
    by_name = {plan.name: plan for plan in plans}
    complete = True
    for plan in plans:
        for dependence in plan.depends:
            if dependence.parent not in by_name:
                complete = False
                mend = did_you_mean(dependence.parent, by_name) or f"steps are {', '.join(by_name)}"
                what = f"there is no step {dependence.parent!r}"
                findings.wrong(dependence.line, dependence.key, what, mend)
    if not complete:
        return []
    order = _sorted(plans, by_name, findings)
    if order and _imply(order):
        order = _sorted(plans, by_name, findings)
    return order


def _imply(order: list[StepPlan]) -> bool:
    """Add a dependency for each workspace that is named but not awaited; whether there were any."""
    before: dict[str, set[str]] = {}
    for plan in order:
        before[plan.name] = {dependence.parent for dependence in plan.depends}
        before[plan.name].update(*(before[dependence.parent] for dependence in plan.depends))
    implied = False
    for plan in order:
        for name in plan.refers_to:
            if name not in before[plan.name]:
                plan.depends.append(Dependence(name, False, False, plan.line, f"{plan.key}.run"))
                implied = True
    return implied


def _sorted(plans: list[StepPlan], by_name: dict[str, StepPlan], findings: Findings) -> list[StepPlan]:
    order: list[StepPlan] = []
    state: dict[str, int] = {}  # 1: on the way down, 2: placed
    for first in plans:
        if first.name in state:
            continue
        trail = [first]
        pending = [iter(first.depends)]
        state[first.name] = 1
        while trail:
            dependence = next(pending[-1], None)
            if dependence is None:
                pending.pop()
                placed = trail.pop()
                state[placed.name] = 2
                order.append(placed)
                continue
            parent = by_name[dependence.parent]
            if state.get(parent.name) == 1:
                _tell_circle(trail[trail.index(parent) :], findings)
                return []
            if parent.name not in state:
                state[parent.name] = 1
                trail.append(parent)
                pending.append(iter(parent.depends))
    return order


def _tell_circle(waiting: list[StepPlan], findings: Findings) -> None:
    """`waiting`: each step waits for the next one, the last for the first."""
    first = min(waiting, key=lambda plan: plan.index)
    start = waiting.index(first)
    circle = [first, *reversed(waiting[start + 1 :]), *reversed(waiting[:start]), first]
    names = " -> ".join(plan.name for plan in circle)
    before = circle[-2].name
    dependence = next(dependence for dependence in first.depends if dependence.parent == before)
    word = f"$({before}.workspace)" if dependence.key.endswith(".run") else "`depends`"
    lines = ", ".join(f"{plan.name} in line {plan.line}" for plan in circle[:-1])
    findings.wrong(
        dependence.line,
        dependence.key,
        f"steps wait for each other in a circle: {names}",
        f"take one of these out of the circle ({lines}); here {first.name} awaits {before} by {word}",
    )
