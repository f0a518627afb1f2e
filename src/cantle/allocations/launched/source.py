"""How does the conductor of several copies get its runners? It tells the others where to go; they have been started already."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cantle.errors import MachineError
from cantle.model.resources import count

from .copies import Copy
from .meetings import Meeting, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cantle.allocations.fleet.source import Invitation, Report

BOUND_S = 120.0
"""Copies that have not come after so long are not waited for any more."""


class LaunchedSource:
    """The other copies. Whoever of them comes late is still let in; who is lost is not started again, by us."""

    def __init__(self, copy: Copy, meeting: Meeting, command: Sequence[str], *, bound_s: float = BOUND_S) -> None:
        self._copy = copy
        self._meeting = meeting
        self._command = tuple(command)
        self._bound_s = bound_s
        self._report: Report | None = None
        self._over = threading.Event()

    def start(self, invitation: Invitation, report: Report) -> None:
        """Tell the others; the first copy on each machine will join."""
        self._report = report
        report.expect(self._copy.machines - 1)
        word = Word(self._command, invitation.file, invitation.number)
        threading.Thread(target=self._tell, args=(word, report), name="launched", daemon=True).start()

    def lost(self, name: str) -> None:
        """A launcher starts its processes once."""

    def close(self) -> None:
        """Nothing of ours is left to end: the runners leave, and their launcher sees them go."""
        self._over.set()

    def all_came(self) -> bool:
        """Whether no copy is still on its way."""
        return self._copy.machines == 1 or (self._report is not None and self._report.outstanding() == 0)

    def _tell(self, word: Word, report: Report) -> None:
        try:
            self._meeting.tell(word)
        except Exception as error:  # noqa: BLE001 - nobody shall wait for ever for the copies, whatever it is
            what = "no other copy of this command can be told where to go"
            why = str(error) if isinstance(error, MachineError) else f"{what}: {type(error).__name__}: {error}"
            report.failed(self._copy.machines - 1, why)
            return
        if not self._over.wait(self._bound_s) and (missing := report.outstanding()):
            report.failed(
                missing,
                f"{count(missing, 'copy') if missing == 1 else f'{missing:,} copies'} of this command on other machines "
                f"did not come within {self._bound_s:.0f} s",
            )
