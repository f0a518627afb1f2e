"""Why did no runner begin on a host? Its ssh, shell or interpreter has said so; here is what of that a user needs."""

from __future__ import annotations

import re
from typing import Literal

from cantle.allocations.hosts import setting_up
from cantle.allocations.hosts.host import Host

Phase = Literal["connecting", "setting up", "joining", "joined", "refused", "leaving"]

_NOISE = re.compile(
    r"Warning: Permanently added|\*\* |@@@|Pseudo-terminal will not be|Authorized uses only|setlocale|Connection to .* closed\."
    r"|debug\d:|^\s*$",
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"kex_exchange_identification|ssh_exchange_identification|Connection reset by peer|Exceeded MaxStartups"
    r"|Resource temporarily unavailable|Connection closed by .* port",
    re.IGNORECASE,
)
_MENDS = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is not the one that is known: if that is right, remove the old one with `ssh-keygen -R {address}`",
    ),
    (r"Host key verification failed|host key is known", "log in once by hand, `ssh {address}`, and accept its key"),
    (
        r"Permission denied",
        "see that `ssh {address}` needs no password: a key in an agent, or in ~/.ssh/authorized_keys there",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "see how its name is written, or give its `address` in hosts.yml",
    ),
    (r"Connection refused", "is there an ssh server on it, and on that port?"),
    (r"timed out|No route to host|Network is unreachable", "is it up, and can it be reached from here?"),
    (
        r"Too many authentication failures",
        "name the one key that it takes: IdentityFile and IdentitiesOnly in ~/.ssh/config",
    ),
    (r"Bad configuration option|no argument after keyword", "mend ~/.ssh/config"),
    (r"No such file or directory|command not found", ""),
)
_SSH_FAILED = 255


class End:
    """How far a host had come when its command ended, and what it said.

    `status` is the command's; None: it was ended by us, since it took longer than `patience_s`. `said` is its stderr,
    `markers` are what its script told, `step` the number of the set-up command that was at work (-1: none).
    """

    __slots__ = ("markers", "patience_s", "phase", "said", "status", "step")

    def __init__(
        self,
        phase: Phase,
        status: int | None,
        said: str,
        markers: list[tuple[str, str]],
        step: int = -1,
        patience_s: float = 0.0,
    ) -> None:
        self.phase = phase
        self.status = status
        self.said = said
        self.markers = markers
        self.step = step
        self.patience_s = patience_s


def is_passing(end: End) -> bool:
    """Whether the same may go well in a moment: a server that has too many others at its door just now."""
    return end.phase == "connecting" and end.status == _SSH_FAILED and bool(_PASSING.search(end.said))


def why(host: Host, end: End) -> str:
    """One sentence that names the host, or a few lines with its own words."""
    what, mend = _what(host, end)
    return f"{host.name}: {what}" + (f"; {mend}" if mend else "")


def _what(host: Host, end: End) -> tuple[str, str]:
    for marker, rest in end.markers:
        if told := of_marker(host, marker, rest, _quote(_words(end.said))):
            return told
    words = _words(end.said)
    if end.status is None:
        return _too_late(host, end, words)
    if end.phase == "connecting":
        return _unreached(host, end, words)
    if end.phase == "setting up":
        if 0 <= end.step < len(host.steps):
            return (
                f"the set-up command `{host.steps[end.step]}` ended the shell with status {end.status}{_quote(words)}",
                "",
            )
        return f"its set-up ended with status {end.status}{_quote(words)}", ""
    if "No module named cantle" in end.said:
        return "there is no Cantle for the Python there", _install(host)
    if "No module named" in end.said:
        return (
            f"something that Cantle needs is not there{_quote(words)}",
            "install what the conductor has there as well",
        )
    if end.status < 0:
        return f"the ssh that held its runner was ended by signal {-end.status}", ""
    return f"its runner ended with status {end.status}{_quote(words)}", ""


def of_marker(host: Host, marker: str, rest: str, quote: str = "") -> tuple[str, str] | None:
    """What was meant by what the script told, and what would help; None when it was nothing of these."""
    if marker == setting_up.FAILED:
        number, _, status = rest.partition(" ")
        return f"the set-up command `{host.steps[int(number)]}` failed with status {status}{quote}", ""
    if marker == setting_up.NO_MODULES:
        return (
            "there is no `module` command there",
            "environment modules are what `modules` loads; `setup` takes any command",
        )
    if marker == setting_up.NO_PYTHON:
        wanted = host.python or "python3"
        return f"there is no {wanted} there", "say in hosts.yml, as `python`, where an interpreter with Cantle is"
    if marker == setting_up.OLD_PYTHON:
        return f"{rest} is too old there: Cantle needs 3.11", "say in hosts.yml, as `python`, where a newer one is"
    if marker == setting_up.NO_CANTLE:
        return "there is no Cantle for the Python there", _install(host)
    return None


def _install(host: Host) -> str:
    if host.python:
        return f"install it there: {host.python} -m pip install cantle"
    return "install it there, or say in hosts.yml, as `python`, which interpreter has it"


def _too_late(host: Host, end: End, words: str) -> tuple[str, str]:
    within = f"within {end.patience_s:g} s"
    if end.phase == "connecting":
        return f"no answer {within}{_quote(words)}", f"does `ssh {host.address} true` work?" if host.address else ""
    if end.phase == "setting up" and 0 <= end.step < len(host.steps):
        return f"the set-up command `{host.steps[end.step]}` was not through {within}{_quote(words)}", ""
    if end.phase == "setting up":
        return f"its set-up was not through {within}{_quote(words)}", ""
    return f"its runner did not join {within}{_quote(words)}", ""


def _unreached(host: Host, end: End, words: str) -> tuple[str, str]:
    if end.status == _SSH_FAILED or not words:
        mend = next((mend for pattern, mend in _MENDS if re.search(pattern, end.said, re.IGNORECASE)), "")
        said = words or f"ssh ended with status {end.status} and said nothing"
        return said, mend.format(address=host.address)
    return f"no shell began there (status {end.status}){_quote(words)}", ""


def _words(said: str) -> str:
    """What was said, without ornament: the last lines that say something."""
    lines = [line.strip() for line in said.splitlines() if not _NOISE.search(line)]
    if any("IDENTIFICATION HAS CHANGED" in line for line in said.splitlines()):
        lines = [
            "the remote host's identification has changed",
            *(line for line in lines if line.startswith("Offending")),
        ]
    return " / ".join(dict.fromkeys(lines[-3:]))[:600]


def _quote(words: str) -> str:
    return f": {words}" if words else ""
