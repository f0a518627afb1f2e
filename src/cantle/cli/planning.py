"""`cantle plan`: what would become of a study on these nodes or those, before any are held."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantle.cli.command import Command, amount, at_least, wrong
from cantle.cli.foreseeing import cores_here, duration_options, read_dry, reading_options
from cantle.cli.machine import limit_options, limits_of
from cantle.cli.reporting import need_charts, write_page
from cantle.cli.slicing import slicing_asked, slicing_options

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.resources import Node
    from cantle.model.study import Study
    from cantle.report.durations import Durations
    from cantle.report.happened import Happened


def _plan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="STUDY",
        type=Path,
        nargs="?",
        help="a Maestro study (YAML) or a WfFormat instance (JSON); with --from it may be left out",
    )
    machines = parser.add_argument_group("the variants")
    machines.add_argument(
        "--nodes",
        metavar="LIST",
        help="variants parted by commas: 10,20,40 counts nodes, 10x8,20x8:2 says their cores and GPUs, "
        "2x64+10x8 joins two sorts in one variant (default: 1, 2, 4 ... while more nodes help)",
    )
    machines.add_argument(
        "--cores-per-node",
        type=at_least(1),
        metavar="N",
        help="cores of nodes that are only counted (default: as here)",
    )
    machines.add_argument(
        "--memory", type=amount("memory_mib"), metavar="SIZE", help="memory of each node (default: as much as needed)"
    )
    machines.add_argument(
        "--ends-in", type=amount("duration_s"), metavar="TIME", help="the nodes are held for so long only, as in 90min"
    )
    machines.add_argument(
        "--packer",
        action="append",
        metavar="NAME",
        help="best-fit (default), first-fit, spread or module:function; may be repeated: each is a variant",
    )
    times = parser.add_argument_group("how long tasks take")
    times.add_argument(
        "--from",
        dest="run",
        type=Path,
        metavar="RUN",
        help="as long as they took in this run's directory, by task or else by step; without --nodes also on its nodes",
    )
    duration_options(times)
    parser.add_argument(
        "--finish-by", type=amount("duration_s"), metavar="TIME", help="recommend what ends within this time, as in 8h"
    )
    slicing_options(parser)
    limit_options(parser)
    reading_options(parser)
    told = parser.add_argument_group("what is told")
    told.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    told.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts, which opens offline")


def _plan(asked: Namespace) -> int:
    from cantle.plugins import find
    from cantle.report.durations import durations_of, experience_of
    from cantle.report.forecast import ending
    from cantle.report.happened import happened_in
    from cantle.report.planned import page, plan_object
    from cantle.report.planning import foresee, recommend
    from cantle.runtime.patience import bounded

    if asked.html is not None:
        need_charts("cantle plan --html")
    if asked.file is None and asked.run is None:
        raise wrong("name a study, or an earlier run with --from RUN")
    packers = [(name, bounded(find("packers", name), name)) for name in asked.packer or ["best-fit"]]
    before = happened_in(asked.run) if asked.run else None
    if asked.file is not None:
        study = read_dry(asked.file, asked, scale=asked.scale, slicing=slicing_asked(asked))
    else:
        assert before is not None
        study = _sliced(before.study(), asked)
    durations = durations_of(study, asked.default_estimate, experience_of(before.timeline) if before else None)
    limits = limits_of(study, asked.throttle, asked.rlimit, asked.fail_fast)
    groups = [(text, ending(nodes, asked.ends_in)) for text, nodes in _groups(asked, study, durations, before)]
    variants = foresee(study, durations, limits, groups, packers)
    advice = recommend(variants, asked.finish_by)
    if asked.html is not None:
        from cantle.report.html.document import plan_page

        write_page(asked.html, plan_page(study.name, variants, durations, asked.default_estimate, advice))
    if asked.as_json:
        import msgspec

        told = plan_object(study.name, variants, durations, asked.default_estimate, advice, asked.finish_by)
        print(msgspec.json.encode(told).decode())
    else:
        for warning in study.warnings:
            print(f"cantle: warning: {warning}", file=sys.stderr)
        for line in page(study.name, variants, durations, asked.default_estimate, advice):
            print(line)
    return 0 if advice.variant is not None else 2


def _sliced(study: Study, asked: Namespace) -> Study:
    """The earlier run's study, with its nodes sliced as the options say. Raises StudyError when that cannot be."""
    from cantle.readers.findings import Findings
    from cantle.readers.slicing import overruled

    findings = Findings(str(asked.run))
    study.slicing = overruled(study.slicing, slicing_asked(asked), findings)
    findings.raise_if_wrong()
    return study


def _groups(
    asked: Namespace, study: Study, durations: Durations, before: Happened | None
) -> list[tuple[str, list[Node]]]:
    """The nodes of each variant."""
    from cantle.report.planning import groups_named, groups_worth_a_look, in_short

    memory: Any = asked.memory
    cores = asked.cores_per_node
    own = before.machines() if before is not None else []
    if cores is None:
        cores = own[0].cores if own else max(cores_here(), *(step.needs.cores for step in study.steps), 1)
    if asked.nodes:
        return groups_named(asked.nodes, cores, study, memory)
    groups = groups_worth_a_look(study, durations, cores, memory)
    if own and asked.cores_per_node is None:
        groups = [(text, nodes) for text, nodes in groups if text != in_short(own)]
        groups.insert(0, (in_short(own), own))
    return groups


PLAN = Command(
    "plan",
    "",
    _plan_arguments,
    _plan,
    """\
Every variant is a whole run in simulated time, by the same core that decides in a real one. Told are its end against
the bound that no schedule can beat, the node-hours, the widths chosen for moldable steps, where nodes would idle and why,
and which variant to take: the one with the fewest node-hours of those that end within 5 % of the soonest, or in time.

Exit status: 0 when a variant can be recommended, 2 otherwise, 1 when the study or the run cannot be read.""",
    """\
  cantle plan study.yaml --nodes 10,20,40 --cores-per-node 8
  cantle plan study.yaml --nodes 10x8,20x8,2x64+10x8    a comma parts variants, a plus joins sorts of nodes
  cantle plan study.yaml --nodes 10,20,40 --finish-by 8h
  cantle plan --from RUN --nodes 4x8,8x8 --packer best-fit --packer spread
  cantle plan --from RUN --nodes 400x8 --slices '3 x 100, 2 x 50' --max-active 4
  cantle plan study.yaml --from RUN --html plan.html    with the durations of an earlier run, as a page""",
)
