"""What do the words after `-j` say? `4`, `server1:4`, `me@server2`, `node[01-16]:4`, `@hostfile`, `*:5`.

Which of the names is this machine, and what else is known of a host, is asked elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cantle.errors import RequestError

FORMS = "4 (here), server1:4, me@server1, node[01-16]:4, @hostfile or '*:4'"
MOST_HOSTS = 10_000
_DIGITS = 18
"""No number that is meant has more."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]")
_USER = re.compile(r"[A-Za-z0-9_][\w.@\\-]*")
_STUDY = (".yaml", ".yml", ".json")


class Named(msgspec.Struct, frozen=True):
    """A host as the user named it: its name, for whom to log in there ("": whoever ssh takes), and how many cores of it.

    `cores` 0: nothing is said. `word` is what the user wrote, for messages.
    """

    name: str
    user: str = ""
    cores: int = 0
    word: str = ""


class Places(msgspec.Struct, frozen=True):
    """Where a run may work. `here`: cores of this machine, None when it is not named.

    `everywhere`: cores on each node that a launcher has started us on, 0 where nothing but `*` is said; None without a `*`.
    """

    here: int | None = None
    hosts: tuple[Named, ...] = ()
    everywhere: int | None = None


def places_of(words: Iterable[str]) -> Places:
    """What the words say. Raises RequestError that names the word, and what would help."""
    here: int | None = None
    everywhere: int | None = None
    hosts: list[Named] = []
    for word in words:
        if word.isascii() and word.isdigit():
            if here is not None:
                raise _wrong(word, f"cores of this machine were named before: {here}", "one number stands for it")
            here = _cores(word, word)
        elif word == "*" or word.startswith("*:"):
            if everywhere is not None:
                raise _wrong(word, "a * was named before", "one is enough")
            everywhere = _cores(word[2:], word) if len(word) > 1 else 0
        elif word.startswith("@"):
            hosts += _from_file(word)
        else:
            hosts += _named(word, word)
    _only_once(hosts)
    return Places(here, tuple(hosts), everywhere)


def names_of(word: str) -> list[str]:
    """The names that a host's name or a nodeset stands for, without users and counts. Raises RequestError."""
    hosts = _named(word, word)
    if any(host.user or host.cores for host in hosts) or not hosts:
        raise RequestError(f"{word!r} is not the name of a host")
    return [host.name for host in hosts]


def _named(text: str, word: str) -> list[Named]:
    """The hosts of one word. A count holds for the names before it that have none of their own."""
    found: list[Named] = []
    waiting: list[tuple[str, str]] = []
    for part in _split(text, word):
        names, cores = _part(part, word)
        waiting += names
        if cores:
            found += [Named(name, user, cores, word) for user, name in waiting]
            waiting.clear()
    found += [Named(name, user, 0, word) for user, name in waiting]
    if len(found) > MOST_HOSTS:
        raise _wrong(word, f"these are {len(found):,} hosts", f"at most {MOST_HOSTS:,} can be named")
    return found


def _split(text: str, word: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts = [""]
    depth = 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
        if depth not in (0, 1):
            break
    if depth:
        raise _wrong(word, "its brackets do not match", "write node[01-16]:4")
    return [part for part in parts if part]


def _part(part: str, word: str) -> tuple[list[tuple[str, str]], int]:
    """The (user, name) of each host in this part, and its count, 0 when there is none."""
    user, at, rest = part.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _wrong(word, f"{user!r} cannot be a user", "write USER@HOST:CORES")
    name, cores = rest, 0
    colon = rest.rfind(":")
    if colon > rest.rfind("]"):
        name, cores = rest[:colon], _cores(rest[colon + 1 :], word)
        if ":" in name and not name.startswith("["):
            raise _wrong(word, "it has several colons", "an IPv6 address stands in brackets, as in [::1]:4")
    names = [name] if _NAME.fullmatch(name) else _expanded(name, word)
    for each in names:
        if not _NAME.fullmatch(each):
            if each.endswith(_STUDY) or "/" in each:
                raise _wrong(word, "it looks like a file", "a study stands before -j; a file that lists hosts is @FILE")
            raise _wrong(word, f"{each!r} cannot be the name of a host", f"write {FORMS}")
        if each.endswith(_STUDY):
            raise _wrong(word, "it looks like a study", "the study stands before -j: cantle run STUDY -j ...")
    return [(user, each) for each in names], cores


def _expanded(name: str, word: str) -> list[str]:
    """The names of a nodeset."""
    if not any(letter in name for letter in "[!&^"):
        return [name]
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException  # type: ignore[import-untyped]
    except ImportError:
        raise _wrong(word, "a set of nodes needs the package ClusterShell", "pip install ClusterShell") from None
    many = f"at most {MOST_HOSTS:,} can be named"
    for first, last in re.findall(r"(\d+)-(\d+)", name):  # each number of a range would be kept, however many these are
        if len(last) > _DIGITS or int(last) - int(first) >= MOST_HOSTS:
            number = f"{int(last) - int(first) + 1:,} hosts" if len(last) <= _DIGITS else "too many hosts"
            raise _wrong(word, f"these are {number}", many)
    try:
        nodes = NodeSet(name)
        if len(nodes) > MOST_HOSTS:
            raise _wrong(word, f"these are {len(nodes):,} hosts", many)
        return list(nodes)
    except NodeSetException as problem:
        raise _wrong(word, f"no set of nodes: {problem}", "write node[01-16]:4, or node[1-4,7]") from None


def _from_file(word: str) -> list[Named]:
    """The hosts of a file as MPI, PBS and SGE write them: a host a line, perhaps with its slots.

    Where a host has several lines, each line is one core.
    """
    path = Path(word[1:])
    if not word[1:]:
        raise _wrong(word, "no file is named", "write @FILE; each of its lines names a host")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "it is no text"
        raise _wrong(word, f"cannot read {path}: {why}", "each line of that file names a host") from None
    found: list[Named] = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{path}:{number}"
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        slots = _slots(fields[1:], place)
        for host in _named(fields[0], place):
            if slots and host.cores:
                raise _wrong(place, f"{line.strip()!r} says twice how many cores there are", "say it once")
            found.append(msgspec.structs.replace(host, cores=host.cores or slots))
    if not found:
        raise _wrong(word, f"there is no host in {path}", "each of its lines names one, as in server1:4")
    return _lines_as_cores(found)


def _slots(fields: list[str], place: str) -> int:
    """What the rest of a line says about the number of cores: OpenMPI's `slots=4`, or SGE's second column."""
    for field in fields:
        key, equals, value = field.partition("=")
        if equals and key == "slots":
            return _cores(value, place)
    return _cores(fields[0], place) if fields and fields[0].isdigit() else 0


def _lines_as_cores(hosts: list[Named]) -> list[Named]:
    """A host that has several lines, once, with their cores added up."""
    lines: dict[tuple[str, str], list[Named]] = {}
    for host in hosts:
        lines.setdefault((host.user, host.name), []).append(host)
    if len(lines) == len(hosts):
        return hosts
    return [msgspec.structs.replace(same[0], cores=sum(host.cores or 1 for host in same)) for same in lines.values()]


def _only_once(hosts: list[Named]) -> None:
    seen: dict[str, Named] = {}
    for host in hosts:
        other = seen.setdefault(host.name, host)
        if other is not host:
            where = "" if other.word == host.word else f" and in {other.word!r}"
            raise _wrong(host.word, f"{host.name} is named twice, here{where}", "name it once, with all of its cores")


def _cores(text: str, word: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        raise _wrong(word, f"{text!r} is not a number of cores", f"write {FORMS}")
    if int(text) < 1:
        raise _wrong(word, "0 cores are no place to work", "leave it out")
    return int(text)


def _wrong(word: str, what: str, mend: str) -> RequestError:
    return RequestError(f"-j {word}: {what}; {mend}")
