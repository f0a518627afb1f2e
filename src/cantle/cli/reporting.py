"""`cantle report`: a page that shows how a run went, with the plan beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantle.cli.command import Command
from cantle.cli.machine import say
from cantle.cli.naming import directory_argument

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.report.happened import Happened
    from cantle.report.html.document import Expected

DEFAULT_NAME = "report.html"


def _report_arguments(parser: ArgumentParser) -> None:
    directory_argument(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"where to write the page (default: {DEFAULT_NAME} in DIR)"
    )
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="compare with this plan, which `cantle plan --json` printed (default: simulate the run's own estimates)",
    )
    parser.add_argument(
        "--packer",
        default="best-fit",
        metavar="NAME",
        help="the packer of the plan that is simulated (default best-fit)",
    )


def _report(asked: Namespace) -> int:
    need_charts("cantle report")
    from cantle.report.happened import happened_in
    from cantle.report.html.document import report_page

    happened = happened_in(asked.directory)
    plan: Expected | None
    no_plan = ""
    if asked.plan is not None:
        plan = _saved(asked.plan)
    else:
        plan, no_plan = _simulated(happened, asked.packer)
    page = report_page(happened, plan, no_plan)
    file = asked.output or happened.run.layout.directory / DEFAULT_NAME
    write_page(file, page)
    return 0


def write_page(file: Path, page: str) -> None:
    """Write it, and tell where it is. Raises MachineError when it cannot be written."""
    from cantle.errors import MachineError

    try:
        file.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise MachineError(f"cannot write {file}: {error.strerror}. Choose another place with -o or --html") from error
    say(f"The page is in {file}")


def need_charts(who: str) -> None:
    """Raises RequestError when the library that draws is not installed."""
    from importlib.util import find_spec

    from cantle.errors import RequestError

    if find_spec("bokeh") is None:
        raise RequestError(f"{who} draws with the package bokeh, which is not installed: pip install 'cantle[pages]'")


def _simulated(happened: Happened, packer: str) -> tuple[Expected | None, str]:
    """The plan that the run's own estimates make on the nodes that it had."""
    from cantle.model.study import Study
    from cantle.plugins import find
    from cantle.report.durations import durations_of
    from cantle.report.forecast import Chances, forecast
    from cantle.report.html.document import Expected
    from cantle.report.step_times import step_times
    from cantle.runtime.patience import bounded

    if len(happened.timeline.state.studies) > 1:
        return (
            None,
            "There is no plan to compare with: several studies shared this allocation. Each has a page of its own.",
        )
    study: Study = happened.study()
    durations = durations_of(study, 1.0)
    if not durations.said:
        return (
            None,
            "There is no plan to compare with: the study gives no estimates. cantle plan --from this run makes one.",
        )
    machines = happened.machines()
    if not machines:
        return None, "There is no plan to compare with: the run has had no nodes yet."
    usual = sum(task.estimate_s for task in study.tasks) / durations.said
    durations = durations_of(study, usual)
    policy = bounded(find("packers", packer), packer)
    found = forecast(study, machines, study.limits, Chances(), packer=policy, durations=durations)
    source = f"the study's estimates on the same nodes, simulated ({durations.said:,} tasks estimated"
    source += f", {durations.assumed:,} taken for the mean of those)" if durations.assumed else ")"
    return (
        Expected(
            source,
            found.end_s,
            found.timeline.node_hours,
            found.utilisation,
            step_times(found.timeline),
            found.timeline,
        ),
        "",
    )


def _saved(file: Path) -> Expected:
    """The recommended variant of a plan, or its only one. Raises RequestError when the file holds none."""
    import msgspec

    from cantle.errors import RequestError
    from cantle.report.html.document import Expected
    from cantle.report.step_times import StepTimes

    try:
        plan: Any = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise RequestError(f"--plan {file}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(
            f"--plan {file}: this is no JSON ({error}). Save what `cantle plan --json` prints"
        ) from error
    try:
        variants = plan["variants"]
        variant = variants[plan["recommended"] or 0]
        steps = msgspec.convert(variant["steps"], list[StepTimes], str_keys=True)
        name = f"{variant['nodes']} {variant['packer']}".strip()
        return Expected(f"{file.name}, {name}", variant["end_s"], variant["node_hours"], variant["utilisation"], steps)
    except (KeyError, IndexError, TypeError, msgspec.ValidationError) as error:
        raise RequestError(
            f"--plan {file}: this is no plan ({type(error).__name__}: {error}). Save what `cantle plan --json` prints"
        ) from error


REPORT = Command(
    "report",
    "",
    _report_arguments,
    _report,
    """\
Shows which attempt ran on which cores and when, how much was in use and why the rest was not, each step's times, CPU and
peak memory, the chain of tasks that led to the end, what was slow and what waited; and beside it what was planned. The page
is one file, opens without a network, and may be made while the run goes on.

Exit status: 0 when the page was written, 1 otherwise.""",
    """\
  cantle report RUN                           writes RUN/report.html
  cantle report RUN -o page.html
  cantle plan study.yaml --nodes 4x8 --json > plan.json; cantle report RUN --plan plan.json""",
)
