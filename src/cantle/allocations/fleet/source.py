"""Who starts runners on other machines, and how does he tell what became of that? The seam that every source of nodes fills.

A source knows how a command is started somewhere (by ssh, by srun, by a provider), and nothing of how runners and conductor
talk. It starts the invitation's command on each of its nodes; whoever accepts the invitation joins the fleet by itself. So
what a source has to tell is only how many are on their way, and which of them will not come.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec.structs import replace

JOINED, REFUSED = "@cantle joined", "@cantle refused"
"""Lines that a runner says on stdout, when a source has started it: its conductor has let it in, or has not."""


class Invitation(msgspec.Struct, frozen=True):
    """What a runner needs to find its conductor and to be let in.

    `file` is a file of mode 0600 that lies in the run's directory; `content` is what stands in it, for runners that get it
    over stdin because their machine does not see the file. `python` is the interpreter that the conductor runs on.
    """

    file: str
    content: bytes
    python: str
    number: int = 0
    """Which source it was given to; runners bring it back, so that it is known whose they are."""
    request: str = ""
    """Which request for nodes it answers, as `NUMBER:INSTANCE`; runners bring that back as well."""

    def answering(self, request: int, instance: str = "") -> Invitation:
        """The same for the runners of a request; `instance` is what their provider calls the machine or job, if it is known."""
        return replace(self, request=f"{request}:{instance}")

    def command(self, *options: str, python: str = "", stdin: bool = False) -> list[str]:
        """The words that start a runner; `options` are further ones of `cantle runner`, as in `--name`, `n3`, `--cores`, `4`.

        `stdin`: the runner reads `content` from its standard input, and lives no longer than that stays open.
        """
        where = "-" if stdin else self.file
        return [
            python or self.python,
            "-m",
            "cantle",
            "runner",
            "--connect",
            where,
            "--expected",
            str(self.number),
            *(("--request", self.request) if self.request else ()),
            *options,
        ]


class Report(Protocol):
    """What a source tells. From any thread; never waits."""

    def expect(self, n: int) -> None:
        """So many more runners are on their way; each of them has `--expected` among its words."""

    def failed(self, n: int, why: str) -> None:
        """Of those expected, so many will not come. `why` names the machine, and has the other side's own words."""

    def outstanding(self) -> int:
        """Of those expected, how many have neither come nor failed. What was reported just now may not count yet."""

    def note(self, text: str) -> None:
        """A sentence for the user."""


class Source(Protocol):
    """Starts runners. Called from the loop's thread only, and never waits there: what takes time is done in threads."""

    def start(self, invitation: Invitation, report: Report) -> None:
        """Begin to start all runners. First of all `report.expect`, so that nobody concludes that none will come."""

    def lost(self, name: str) -> None:
        """The runner of this name has joined and is gone. Whoever can start another one says `expect` and does so."""

    def close(self) -> None:
        """The run is over: end what was started and is still there, within a few seconds."""
