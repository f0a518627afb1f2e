"""Where shall it run: on this machine, on hosts that are named, or both? What `-j` and its relatives come to."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import wrong

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from cantle.allocations.hosts.host import Environment, Host
    from cantle.allocations.hosts.source import HostsSource
    from cantle.allocations.hosts.words import Named

HOSTS_FILE = "hosts.yml"
_LOGIN_S = 30.0
_DIGITS = 18


def place_options(parser: ArgumentParser) -> None:
    """The options that say where to run."""
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "-j",
        "--places",
        nargs="+",
        action="extend",
        default=[],
        type=_place,
        metavar="PLACE",
        help="4 (cores of this machine), server1:4, me@server2, node[01-16]:4, @hostfile; a host without a number gives "
        "all its cores. Hosts are reached by ssh, and must see the run's directory",
    )
    group.add_argument(
        "--this-machine",
        action="store_true",
        help="inside a batch job, or under mpirun or srun: this machine alone, although there are others",
    )
    group.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="what is known of hosts (default: hosts.yml beside the study, and in ~/.config/cantle)",
    )
    group.add_argument(
        "--environment",
        choices=("inherit", "clean", "login"),
        help="with which environment tasks begin: this shell's (default), next to nothing, or a login shell's",
    )


def _place(word: str) -> str:
    """A word after -j, unless it is the study: that would be missed, and nobody would know why."""
    if not word.strip():
        raise argparse.ArgumentTypeError("'' names no place: is a variable empty?")
    if word.endswith((".yaml", ".yml", ".json")) and not word.startswith("@"):
        raise argparse.ArgumentTypeError(f"{word!r} looks like a study; it stands before -j: STUDY -j 4 server1:4")
    return word


class RestartsOrHost(argparse.Action):
    """`-r 3` is Maestro's: at most three restarts. `-r HOST` names where the whole run is done."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[str] | None,
        option_string: str | None = None,  # noqa: ARG002 - argparse's
    ) -> None:
        """Put it down as what it is."""
        word = str(values)
        if word.isascii() and word.isdigit():
            namespace.rlimit = (
                int(word) if len(word) < 10 else parser.error(f"argument -r: {word[:20]}... is too many restarts")
            )
        elif word[:1] in ("", "-"):
            parser.error(f"argument -r: {word!r} is neither a number of restarts nor a host")
        else:
            namespace.remote = word


def settle(asked: Namespace, inside: bool = False) -> tuple[bool, list[HostsSource]]:
    """Whether this machine takes part, and who starts runners elsewhere. What `-j` says of this machine's cores is put down.

    `inside` a batch job or a launch, `*` stands for its nodes.
    Raises RequestError or StudyError with what is wrong.
    """
    if not asked.places:
        return True, []
    hosts, here = resolved(asked, inside)
    if here is not None:
        if here and (asked.cores is not None or asked.nodes):
            other = "--nodes" if asked.nodes else "--cores"
            raise wrong(f"-j {here} and {other} both say how many cores of this machine")
        asked.cores = here or asked.cores
    takes_part = here is not None or asked.cores is not None or bool(asked.nodes)
    if not hosts:
        return takes_part, []
    from cantle.allocations.hosts.source import HostsSource

    return takes_part, [HostsSource(hosts)]


def resolved(asked: Namespace, inside: bool = False) -> tuple[list[Host], int | None]:
    """What is known of each host that is named, and the cores of this machine: 0 for all, None when it is not named."""
    from cantle.allocations.hosts.words import places_of

    places = places_of(asked.places)
    if places.everywhere is not None and not inside:
        raise wrong("-j '*' stands for the nodes of a batch job, an mpirun or an srun, and this run is in none")
    here = places.here
    hosts: list[Host] = []
    known = known_hosts(asked) if places.hosts else {}
    for named in places.hosts:
        host = _host(named, known, asked.environment or "inherit")
        if host.address or not host.is_plain:
            hosts.append(host)
        elif here is None:
            here = host.cores or 0
        else:
            told = f"{here} cores" if here else "all of it"
            raise wrong(f"-j {named.word}: {named.name} is this machine, which was named before: {told}")
    return hosts, here


def _host(named: Named, known: dict[str, Host], environment: Environment) -> Host:
    from msgspec.structs import replace

    from cantle.allocations.hosts.here import is_here
    from cantle.allocations.hosts.host import Host

    bare = named.name.strip("[]")  # ssh takes an IPv6 address without its brackets
    host = known.get(named.name) or Host(
        name=bare, address=bare, environment="login" if environment == "login" else "inherit"
    )
    address = host.address.rpartition("@")[2]
    if is_here(address) and "@" not in host.address and not named.user:
        host = replace(host, address="")
        if not known.get(named.name):  # what our own tasks begin with is said elsewhere
            host = replace(host, environment="inherit")
    elif named.user:
        host = replace(host, address=f"{named.user}@{address}")
    return replace(host, cores=named.cores or host.cores)


def host_named(asked: Namespace, named: Named) -> Host:
    """What is known of this one host."""
    return _host(named, known_hosts(asked), asked.environment or "inherit")


def known_hosts(asked: Namespace) -> dict[str, Host]:
    """All hosts of the files that count here, by name."""
    from cantle.readers.hosts import hosts_in

    return hosts_in(_files(asked), asked.environment or "inherit")


def _files(asked: Namespace) -> list[Path]:
    """The files that tell of hosts, the nearest first."""
    if asked.hosts is not None:
        return [asked.hosts]
    study: Path | None = getattr(asked, "study_file", None)
    config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    files = [(study.parent if study else Path()) / HOSTS_FILE, config / "cantle" / HOSTS_FILE]
    return [file for file in files if file.is_file()]


def environment_of(mode: str | None) -> dict[str, str] | None:
    """What tasks inherit in this mode; None: what this process has. Raises MachineError when no login shell can be asked."""
    if mode in (None, "inherit"):
        return None
    from cantle.allocations.hosts.setting_up import PLAIN_PATH

    names = ("HOME", "USER", "LOGNAME", "SHELL")
    clean = {name: os.environ[name] for name in names if name in os.environ} | {"PATH": PLAIN_PATH}
    if mode == "clean":
        return clean
    from subprocess import DEVNULL, SubprocessError, run

    from cantle.errors import MachineError

    try:
        done = run(
            ["/bin/bash", "-l", "-c", "exec env -0"],
            env=clean,
            stdin=DEVNULL,
            capture_output=True,
            timeout=_LOGIN_S,
            check=True,
        )
    except (OSError, SubprocessError) as problem:
        raise MachineError(f"--environment login: the login shell did not tell its environment: {problem}") from None
    entries = [os.fsdecode(entry).partition("=") for entry in done.stdout.split(b"\0")]
    return {name: value for name, equals, value in entries if equals and "\n" not in name}
