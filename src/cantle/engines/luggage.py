"""How do files travel with an attempt: to its node before it begins, and back with the news of its end?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.engines import staging
from cantle.engines.told import no_text, unstartable
from cantle.model.resources import Node
from cantle.model.seams import Inbox
from cantle.runner.messages import Ended, Key, Staged, Start

if TYPE_CHECKING:
    from cantle.engines.intake import Intake
    from cantle.engines.porter import Porter


class Luggage:
    """The files of an engine's attempts.

    `post` lets a start go to a node. `local_files` learns, by task, the paths of files that other machines do not see.
    """

    def __init__(
        self,
        inbox: Inbox,
        post: Callable[[int, Start], None],
        local_files: dict[int, list[str]],
    ) -> None:
        self._inbox = inbox
        self._post = post
        self._local_files = local_files
        self._porter: Porter | None = None
        self._intake: Intake | None = None
        self._homes: dict[Key, tuple[str, int]] = {}
        """Of attempts that bring files back, to which run's directory, and from which node."""

    def send(self, index: int, node: Node, start: Start, directory: str, behind: int | None) -> None:
        """Let the start go to the node's runner when what it stages in has been read, and whom it follows has gone there."""
        stage = start.command.stage

        def post(found: Staged | None, why_not: str) -> None:
            if why_not:
                self._cannot_start(start.key, f"what it stages in: {why_not}")
                return
            try:
                self._post(index, replace(start, stage=found))
            except UnicodeEncodeError as error:
                self._cannot_start(start.key, no_text(error))
                return
            if stage is not None:
                self._homes[start.key] = (directory, index)
                if stage.local:
                    self._local_files[start.key[0]] = staging.paths_alone(start.command, directory, node.apart)

        if self._porter is None:
            from cantle.engines.porter import Porter

            self._porter = Porter(self._inbox)
        reading = None if stage is None else staging.reading(stage, directory, node.apart)
        self._porter.fetch(start.key, index, reading, post, behind)

    def is_ahead_of(self, behind: int | None) -> bool:
        """Whether what goes with that task's attempt is still on its way, so that who follows it has to go the same way."""
        return behind is not None and self._porter is not None and self._porter.carries_for(behind)

    def drop(self, key: Key) -> bool:
        """The attempt does not begin. False when it has gone to its node already, or never was here."""
        return self._porter is not None and self._porter.drop(key)

    def takes_in(self, ended: Ended, then: Callable[[Ended], None]) -> bool:
        """Whether files came with the end of an attempt: `then` is called with it once they are where they belong."""
        home, _ = self._homes.pop(ended.key, ("", -1))
        if not home or not ended.files:
            return False

        def written(why_not: str) -> None:
            if why_not:
                then(replace(ended, outcome="failed", detail=f"what it stages out: {why_not}", files=()))
            else:
                then(replace(ended, files=()))

        if self._intake is None:
            from cantle.engines.intake import Intake

            self._intake = Intake(self._inbox)
        self._intake.take_in(home, ended.files, written)
        return True

    @property
    def waits_for(self) -> dict[int, Callable[[], None]]:
        """Of what is taken in: a descriptor that can be read when something is done, and what to call then."""
        return {} if self._intake is None else {self._intake.fd: self._intake.turn}

    def over(self, key: Key) -> None:
        """The attempt has ended, and nothing comes back any more."""
        self._homes.pop(key, None)

    def node_gone(self, index: int) -> None:
        """Nothing begins there any more, nor comes back."""
        self._homes = {key: home for key, home in self._homes.items() if home[1] != index}
        if self._porter is not None:
            self._porter.node_gone(index)

    def tick(self) -> None:
        """Tell now and then of attempts for which nothing comes."""
        if self._porter is not None:
            self._porter.tick()

    def close(self) -> None:
        """Nothing more is sent."""
        if self._porter is not None:
            self._porter.close()
            self._porter = None

    def end(self) -> None:
        """Nothing more is taken in."""
        if self._intake is not None:
            self._intake.close()
            self._intake = None

    def _cannot_start(self, key: Key, why: str) -> None:
        self._inbox.put(unstartable(self._inbox.now(), key, why))
