"""How do files travel with an attempt: to its node before it begins, and back with the news of its end?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.engines import staging
from cantle.engines.told import no_text
from cantle.model.resources import Node
from cantle.model.seams import Inbox
from cantle.runner.messages import Ended, Key, Staged, Start

if TYPE_CHECKING:
    from cantle.engines.porter import Porter


class Luggage:
    """The files of an engine's attempts.

    `post` lets a start go to a node; `unstartable` tells why one cannot. `local_files` learns, by task, the paths of files that
    other machines do not see.
    """

    def __init__(
        self,
        inbox: Inbox,
        post: Callable[[int, Start], None],
        unstartable: Callable[[Key, str], None],
        local_files: dict[int, list[str]],
    ) -> None:
        self._inbox = inbox
        self._post = post
        self._unstartable = unstartable
        self._local_files = local_files
        self._porter: Porter | None = None
        self._homes: dict[Key, tuple[str, int]] = {}
        """Of attempts that bring files back, to which run's directory, and from which node."""

    def send(self, index: int, node: Node, start: Start, directory: str, behind: int | None) -> None:
        """Let the start go to the node's runner when what it stages in has been read, and whom it follows has gone there."""
        stage = start.command.stage

        def post(found: Staged | None, why_not: str) -> None:
            if why_not:
                self._unstartable(start.key, f"what it stages in: {why_not}")
                return
            try:
                self._post(index, replace(start, stage=found))
            except UnicodeEncodeError as error:
                self._unstartable(start.key, no_text(error))
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

    def taken_in(self, ended: Ended) -> Ended:
        """The end of an attempt, once the files that came with it are where they belong."""
        home, _ = self._homes.pop(ended.key, ("", -1))
        if not home:
            return ended
        try:
            staging.take_in(home, ended.files)
        except (OSError, ValueError) as error:
            return replace(ended, outcome="failed", detail=f"what it stages out: {error}", files=())
        return replace(ended, files=())

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
