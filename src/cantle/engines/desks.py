"""Which desks of an engine has this run opened so far, for what most runs never need?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cantle.engines.mail import Mail
from cantle.model.seams import Inbox

if TYPE_CHECKING:
    from cantle.engines.agents import Agents
    from cantle.engines.calls import Calls
    from cantle.engines.gangs import Gangs
    from cantle.engines.luggage import Luggage
    from cantle.engines.process import ProcessEngine


class Desks:
    """What an engine needs beyond processes that run alone on one node. Each desk is None until somebody opens it."""

    __slots__ = ("_inbox", "_mail", "agents", "calls", "gangs", "luggage")

    def __init__(self, inbox: Inbox, mail: Mail) -> None:
        self._inbox = inbox
        self._mail = mail
        self.agents: Agents | None = None
        """Partitions that something serves."""
        self.calls: Calls | None = None
        """Python functions."""
        self.gangs: Gangs | None = None
        """Attempts of several parts, or on several nodes."""
        self.luggage: Luggage | None = None
        """Files that travel with an attempt."""

    def open_agents(self) -> Agents:
        """The agents; from now on they are there."""
        if self.agents is None:
            from cantle.engines.agents import Agents

            self.agents = Agents(self._inbox, self._mail.tell)
        return self.agents

    def open_calls(self, engine: ProcessEngine) -> Calls:
        """The same for the calls of this engine."""
        if self.calls is None:
            from cantle.engines.calls import Calls

            self.calls = Calls(engine)
        return self.calls

    def open_gangs(self, launch_lost_a_node: Callable[[], None]) -> Gangs:
        """The same for gangs. `launch_lost_a_node` hears of an attempt that spreads itself and has lost one of its nodes."""
        if self.gangs is None:
            from cantle.engines.gangs import Gangs

            mail, inbox = self._mail, self._inbox
            self.gangs = Gangs(mail.end, inbox.put, mail.tell, launch_lost_a_node, inbox.now)
        return self.gangs

    def open_luggage(self, local_files: dict[int, list[str]]) -> Luggage:
        """The same for luggage. `local_files` learns, by task, the paths of files that other machines do not see."""
        if self.luggage is None:
            from cantle.engines.luggage import Luggage

            self.luggage = Luggage(self._inbox, self._mail.post, local_files)
        return self.luggage
