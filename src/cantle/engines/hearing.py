"""What do the runners of an engine's nodes say, and which event does it become; when is one heard no more?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.engines.desks import Desks
from cantle.engines.link import Link
from cantle.engines.mail import Mail
from cantle.engines.sending import Sending
from cantle.engines.told import as_event, on_our_clock
from cantle.model.records import NodeLost, TaskStarted
from cantle.model.seams import Inbox
from cantle.runner.messages import Ended, Held, Leaving, Said, Serving, Started, Swept

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cantle.runner.messages import Up


class Hearing:
    """Hears the runners at the links of this mail.

    `ahead_s`: by how much the clock of the runners that we fork is ahead of the records' time.
    """

    def __init__(self, inbox: Inbox, mail: Mail, desks: Desks, ahead_s: float) -> None:
        self._inbox = inbox
        self._mail = mail
        self._links = mail.links
        self._desks = desks
        self._ahead_s = ahead_s
        self.sending = Sending(inbox, mail.links, self.hear)
        """What goes to these runners. One that takes nothing more is heard, up to the end of its channel."""

    def listen(self, index: int, link: Link) -> None:
        """Hear the node's runner whenever it says something."""
        self._inbox.watch(link.channel.fileno(), lambda: self.hear(index))

    def hear(self, index: int) -> None:
        """Turn what the node's runner says into events."""
        link = self._links.get(index)
        if link is None or link.held is not None:
            return
        try:
            data = link.channel.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(index, link, f"its runner cannot be reached: {error.strerror or error}")
            return
        if not data:
            self._lose(index, link, link.channel.why_ended or "its runner is gone")
            return
        self._take(index, link, link.frames.feed(data))

    def let_go(self, index: int, link: Link) -> None:
        """The link is over, and with it what runs there. Gangs are to be told, with the event if there is one."""
        self._mail.forget(index)
        self._inbox.unwatch(link.channel.fileno())
        self.sending.stop(index)
        link.channel.close()
        desks = self._desks
        if desks.luggage is not None:
            desks.luggage.node_gone(index)
        if desks.agents is not None:
            desks.agents.node_gone(index)
        if desks.calls is not None:
            desks.calls.node_gone(index)

    def _take(self, index: int, link: Link, messages: Iterable[Up | str]) -> None:
        put = self._inbox.put
        desks = self._desks
        ahead_s = link.channel.clock_ahead_s + self._ahead_s
        told = iter(messages)
        for message in told:
            if ahead_s and isinstance(message, Ended | Started):
                message = on_our_clock(message, ahead_s)
            if type(message) is Ended:
                # A gang, and what is hosted, name their nodes themselves.
                of_one_node = len(message.key) == 2 and message.key[0] >= 0
                if message.outcome == "unstartable" and len(self._links) > 1 and of_one_node:
                    message = replace(message, detail=f"on {link.node.name}: {message.detail}")
                if message.files and message.key in link.running and self._takes_in(index, link, message):
                    link.held = list(told)
                    self._inbox.unwatch(link.channel.fileno())
                    return
                self._end(index, link, message)
            elif type(message) is Started:
                if message.key[0] < 0 or message.key not in link.running:
                    continue
                if desks.gangs is None or not desks.gangs.started(message):
                    put(TaskStarted(message.time, message.key[0], message.key[1], message.pid))
            elif type(message) is Swept and desks.gangs is not None:
                desks.gangs.swept(index, message.key)
            elif type(message) is Said and desks.gangs is not None:
                desks.gangs.said(message.key, message.text, message.over, message.waits)
            elif type(message) is Serving and desks.agents is not None:
                desks.agents.serves(message.key, message.text)
            elif type(message) is Held and desks.agents is not None:
                desks.agents.heard(index, message.partition)
            elif type(message) is Leaving:
                self._lose(index, link, message.reason)
                return
            elif type(message) is str:
                self._lose(index, link, message)
                return

    def _takes_in(self, index: int, link: Link, ended: Ended) -> bool:
        """Whether files come with the end of an attempt, and have to be put where they belong before it is told."""
        luggage = self._desks.luggage
        return luggage is not None and luggage.takes_in(ended, lambda taken: self._go_on(index, link, taken))

    def _go_on(self, index: int, link: Link, ended: Ended) -> None:
        """They are there: tell the end, then what the runner has said after it, and listen again."""
        if self._links.get(index) is link:
            held, link.held = link.held or (), None
            self.listen(index, link)
            self._end(index, link, ended)
            self._take(index, link, held)

    def _end(self, index: int, link: Link, message: Ended) -> None:
        """An attempt is over, or a part of one, or what a partition hosts."""
        link.received = message.number
        if message.key not in link.running:
            return
        link.running.discard(message.key)
        del self._mail.where[message.key]
        desks = self._desks
        if message.key[0] < 0:
            desks.open_agents().ended(message)
            return
        if desks.luggage is not None:
            desks.luggage.over(message.key)
        if desks.calls is not None:
            desks.calls.ended(index, message)
        if desks.gangs is None or not desks.gangs.ended(message):
            self._inbox.put(as_event(message))

    def _lose(self, index: int, link: Link, reason: str) -> None:
        """The runner says nothing more."""
        self.let_go(index, link)
        event = NodeLost(self._inbox.now(), index, f"{link.node.name}: {reason}")
        if self._desks.gangs is None:
            self._inbox.put(event)
        else:
            self._desks.gangs.node_gone(index, event)
