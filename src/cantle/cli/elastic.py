"""Which options say what nodes may come and go, and by which policy; and what brings them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cantle.cli.command import wrong

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cantle.allocations.fleet.source import Source
    from cantle.allocations.local import LocalAllocation
    from cantle.allocations.providers.base import Provider
    from cantle.allocations.providers.declared import Declared
    from cantle.allocations.providers.elastic import ElasticAllocation
    from cantle.core.decide import Decider
    from cantle.core.scaling.settings import Scaling
    from cantle.runtime.apart.functions import Functions
    from cantle.store.layout import Layout

_SETTINGS = {
    "idle": "idle_s",
    "notice": "notice_s",
    "stays": "stays_s",
    "cool-down": "cool_down_s",
    "retry": "retry_s",
    "survivors": "survivors_s",
}


def elastic_options(parser: ArgumentParser) -> None:
    """The options that let nodes come and go."""
    group = parser.add_argument_group("nodes that come and go")
    group.add_argument(
        "--kinds",
        metavar="FILE|TEXT",
        help="kinds of node that can be had, as in 'cpu: {cores: 4, max: 8, provider: slurm}'; this machine serves then only "
        "if --cores, --nodes or -j says so",
    )
    group.add_argument(
        "--scaling",
        action="append",
        default=[],
        metavar="POLICY[:ARG]",
        help="who decides how many of them there are, as in fixed:4 or module:function; or a bound, as in idle=60s "
        f"({', '.join(_SETTINGS)}); may be repeated",
    )
    group.add_argument(
        "--on-idle",
        metavar="COMMAND",
        help="run this when a node has become unused (notice=30s says after how long): CANTLE_NODE, CANTLE_KIND and CANTLE_WHY "
        "tell it which and why; the run does not wait for it",
    )


def kinds_asked(asked: Namespace) -> tuple[Declared, ...]:
    """The kinds that the command line declares, else the study; what it says of scaling is put down if nothing else is said.

    Raises StudyError, RequestError, also for a policy that nobody could carry out.
    """
    wanted = [word for word in asked.scaling if "=" not in word.partition(":")[0]]
    kinds = _declared(asked)
    if wanted and not kinds:
        raise wrong(
            f"--scaling {wanted[0]}: no node can be asked for, as no kinds of node are declared. Say which there are: --kinds "
            "'cpu: {cores: 4, max: 8, provider: local}', or `cantle: {kinds: ...}` in the study"
        )
    return kinds


def _declared(asked: Namespace) -> tuple[Declared, ...]:
    kinds, words = _of_the_study(getattr(asked, "study_file", None))
    asked.scaling = asked.scaling or list(words)
    if asked.kinds is None:
        return kinds
    from cantle.readers.kinds import kinds_in_words

    return kinds_in_words(asked.kinds)


def _of_the_study(study: Path | None) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
    """The kinds that it declares, and what it says of scaling."""
    if study is None or study.suffix not in (".yaml", ".yml") or not study.is_file():
        return (), ()
    data = study.read_bytes()
    if b"kinds:" not in data and b"scaling:" not in data:
        return (), ()
    from cantle.readers.kinds import elasticity_in

    return elasticity_in(study)


def takes_part(asked: Namespace) -> bool:
    """Whether this machine serves beside the nodes that come: if anything is said about what of it."""
    return bool(asked.places or asked.nodes or asked.cores)


def scaling_asked(asked: Namespace) -> Scaling | None:
    """What the command line says about how the run grows and shrinks, None for nothing. Raises RequestError."""
    if not asked.scaling:
        return None
    from cantle.core.scaling.naming import NAMES, is_built_in, require_known
    from cantle.core.scaling.settings import Scaling
    from cantle.plugins import declared_as
    from cantle.readers.quantities import duration_s

    policies: list[str] = []
    said: dict[str, Any] = {}
    for word in asked.scaling:
        key, equals, value = word.partition("=")
        if equals and key in _SETTINGS:
            try:
                said[_SETTINGS[key]] = duration_s(value)
            except ValueError as problem:
                raise wrong(f"--scaling {word}: {problem}") from None
        elif equals and key.replace("-", "").isalpha():
            hint = f"; the policy is written {key}:{value}" if key in NAMES else ""
            raise wrong(f"--scaling {word}: {key!r} is no bound; there are {', '.join(_SETTINGS)}{hint}")
        elif (parts := word.partition(":"))[0] in _SETTINGS and not parts[2].isidentifier():
            name, _, value = parts
            raise wrong(f"--scaling {word}: {name} is a bound, and no policy: write {name}={value or '30s'}")
        elif word.partition(":")[0] in NAMES or ":" in word:
            policies.append(word)
        else:
            policies.append(declared_as("scaling_functions", word) or word)
    require_known(policies)
    theirs = [word for word in policies if not is_built_in(word)]
    if theirs:
        from cantle.runtime.scaling_functions import looked_at

        for word in theirs:
            looked_at(word)  # what is wrong with it is told before anything is begun
    return Scaling(policies=tuple(policies), **said)


def heed_scaling(decider: Decider, asked: Namespace) -> None:
    """The decider goes by what the command line says about nodes. Raises RequestError, PluginError."""
    decider.scaling = scaling_asked(asked)
    if decider.scaling is not None and decider.scaling.policies:
        from cantle.runtime.scaling_functions import scalers_of

        decider.scalers = scalers_of(decider.scaling)


def elastic(
    asked: Namespace,
    kinds: Sequence[Declared],
    here: LocalAllocation | None,
    others: Sequence[Source],
    spare: LocalAllocation,
) -> ElasticAllocation:
    """Nodes of these kinds beside this machine, if it takes part (`here`), and beside what the sources bring.

    `spare` starts runners here for nodes that come on this machine. Raises RequestError, MachineError.
    """
    from cantle.allocations.providers.elastic import ElasticAllocation
    from cantle.allocations.providers.gate import Gate

    functions = _functions(kinds)
    providers = [provider for each in kinds if (provider := _provider(asked, each, functions)) is not None]
    local = any(not provider.invites for provider in providers)
    idle = [each.kind for each in kinds if each.by == "nobody"]
    if not (asked.listen or others or any(provider.invites for provider in providers)):
        return ElasticAllocation(here, providers, here or spare, others=idle, scaling=asked.scaling)
    from cantle.cli.fleet import with_others

    gate = Gate()
    fleet = with_others(asked, here, [*others, gate], grows=True)
    gate.instance_of = fleet.instance_of
    starts = (here or spare) if local else None
    fleet.hears = growing = ElasticAllocation(fleet, providers, starts, gate, others=idle, scaling=asked.scaling)
    return growing


def _functions(kinds: Sequence[Declared]) -> Functions | None:
    """Where the functions of the kinds run, those of all in one process: they may share what they remember."""
    if not any(each.by == "own" and _is_function(each.add) for each in kinds):
        return None
    from cantle.runtime.apart.functions import Functions

    return Functions()


def _provider(asked: Namespace, each: Declared, functions: Functions | None) -> Provider | None:
    """Who brings nodes of this kind; None: nobody."""
    from cantle.plugins import find, made

    if each.by == "local":
        from cantle.allocations.providers.local import LocalNodes

        return LocalNodes(each.kind, each.after_s)
    if each.by == "batch":
        from shutil import which

        from cantle.allocations.providers.batch import BatchProvider
        from cantle.allocations.submission.choosing import system_here

        system = made("batch_systems", each.system or system_here())
        if which(system.submits_by) is None:
            raise wrong(
                f"kind {each.kind.name}: jobs of {system.name} are submitted by {system.submits_by}, which is not here"
            )
        return BatchProvider(each.kind, system, each.job)
    if each.by == "hosts":
        return _pool(asked, each)
    if each.by == "own":
        return _own(each, functions)
    if each.by == "plugin":
        from cantle.allocations.providers import checking

        return checking.provider(each.system, find("providers", each.system), each.kind)
    return None


def _pool(asked: Namespace, each: Declared) -> Provider:
    from msgspec.structs import replace

    from cantle.allocations.hosts.words import places_of
    from cantle.allocations.providers.hosts import HostPool
    from cantle.cli.places import host_named

    kind = each.kind
    hosts = []
    for named in places_of(each.hosts).hosts:
        host = host_named(asked, named)
        hosts.append(
            replace(
                host,
                cores=named.cores or kind.cores,
                gpus=kind.gpus,
                memory_mib=kind.memory_mib or host.memory_mib,
                named=kind.named or host.named,
            )
        )
    return HostPool(kind, hosts)


def _own(each: Declared, functions: Functions | None) -> Provider:
    from cantle.allocations.providers.custom import PATIENCE_S, Cloud, Commands, CustomProvider

    patience_s = each.patience_s or PATIENCE_S
    undo = {"by": "nobody"}
    if each.remove:
        undo = {"by": "function" if _is_function(each.remove) else "command", "remove": each.remove}
    cloud: Cloud
    if functions is not None and _is_function(each.add):
        if each.remove and not _is_function(each.remove):
            raise wrong(f"kind {each.kind.name}: `add` is a function, so `remove` must be one as well: module:function")
        from cantle.runtime.apart.functions import FunctionCloud

        cloud = FunctionCloud(functions, each.add, each.remove)
    else:
        if _is_function(each.remove):
            raise wrong(f"kind {each.kind.name}: `add` is a command, so `remove` must be one as well")
        cloud = Commands(each.add, each.remove, patience_s)
        patience_s += 5.0  # the command is ended first
    return CustomProvider(each.kind, cloud, undo, bool(each.remove), patience_s, each.joins_s)


def _is_function(text: str) -> bool:
    """`module:function`, rather than a command line."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def take_back_leftovers(layout: Layout, note: Callable[[str], None]) -> int:
    """Take back what an earlier conductor of this run, which is dead, has left in queues and clouds. How much that was."""
    if not layout.elastic.is_dir():
        return 0
    from cantle.runtime.apart.leaving import take_back_apart

    return take_back_apart(layout.elastic, note)


def cancel_what_is_left(layout: Layout, yes: bool) -> bool:
    """Take back what a dead conductor has left; False when nothing is on record, or one is at work: then it is asked.

    Raises RequestError when that is not meant after all, MachineError when something is left all the same.
    """
    import sys

    from cantle.allocations.providers.records import Records
    from cantle.errors import MachineError, RequestError
    from cantle.store.lock import ConductorLock, holder

    left = Records(layout.elastic).left()
    if not left or holder(layout.lock) is not None:
        return False
    nodes = sum(each.count for each in left)
    what = f"what a conductor that is dead has left of {nodes:,} nodes that it asked for"
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError("nobody can be asked here whether you mean it; say so with -y")
        if input(f"Cancel {what}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise RequestError("nothing was canceled")
    lock = ConductorLock(layout.lock)
    lock.acquire()
    try:
        done = take_back_leftovers(layout, lambda text: print(f"cantle: {text}", file=sys.stderr))
    finally:
        lock.release()
    if done < len(left):
        raise MachineError(f"of {len(left)} requests {len(left) - done} may have left something")
    print(f"canceled: {what}")
    from cantle.report.failures import typed

    print(
        f"Its tasks stand as it left them, and none is canceled: cantle resume {typed(layout.directory)} goes on with them."
    )
    return True
