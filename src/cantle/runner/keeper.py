"""What becomes of the attempts on a node? The conductor's word is obeyed, each is started, and told when it is over.

Beside it: `places.py` (who begins where), `reaping.py` (who has ended), `ending.py` and `memory.py` (who has to end),
`reports.py` (what goes up).
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from cantle.model.records import Outcome
from cantle.model.study import Command

from . import clock
from .channel import RunnersEnd
from .ending import AGAIN_S, KILLS, Ending
from .family import Attempt, Family, Place
from .messages import (
    Ack,
    Base,
    BaseOver,
    Define,
    Down,
    End,
    Ended,
    Forget,
    Held,
    Hold,
    Key,
    Release,
    Serve,
    Setup,
    Start,
    Sweep,
    Swept,
)
from .packed import Allowance
from .places import ENOUGH_IN_LINE, Places
from .reaping import Reaper
from .reports import Reports
from .spawn import NotStarted, Spawner
from .spool import write_spool
from .wording import as_stream, how_it_ended, in_a_shell

if TYPE_CHECKING:
    import select

    from .calling.crew import Crew
    from .heeding import Heeder
    from .memory import Watch
    from .serving import Probes

_FAREWELL_S = 2.0
"""The longest grace once the conductor has gone."""


class Keeper:
    """Keeps the attempts of one node, for one conductor over one channel, under one setup."""

    def __init__(self, channel: RunnersEnd, setup: Setup, poll: select.poll | None = None) -> None:
        self._setup = setup
        self._family = Family()
        self.reports = Reports(channel)
        self.places = Places(self._family, self.reports, self._begin)
        self._reaper = Reaper(self._family, self.places, self.reports, self._conclude)
        self.reap = self._reaper.reap
        """Waits for all children that have ended, and reports the attempts that are over."""
        self._ending = Ending(self._family, setup.grace_s, self.reap, self._give_up)
        self.end = self._ending.end
        """Ends an attempt: TERM now, KILL after the grace. Whoever comes second can only shorten the grace."""
        self._allowance = Allowance()
        self._spawner = Spawner(setup, allowance=self._allowance)
        self._spawners = {0: self._spawner}
        """By base; `_spawner` is the one that was used last."""
        self._watch: Watch | None = None
        self._heeder: Heeder | None = None
        self._probes: Probes | None = None
        self._poll = poll
        self.crew: Crew | None = None
        self._bases_of_launches: dict[Key, Spawner] = {}
        self.shares: dict[int, str] = {}
        """Partitions that have a share of this node, by number, and what they are called."""

    # What the loop calls

    def wait_ms(self) -> float | None:
        """How long the loop may sleep, in milliseconds; None: until something happens."""
        first = min(self.reports.next_due(), self._ending.next_due(), self._reaper.next_due())
        if self._watch is not None:
            first = min(first, self._watch.next_due())
        if self._heeder is not None:
            first = min(first, self._heeder.next_due())
        if self._probes is not None:
            first = min(first, self._probes.next_due())
        if self.crew is not None:
            first = min(first, self.crew.next_due())
        if first == float("inf"):
            return None
        return min(max(0.0, (first - time.monotonic()) * 1000 + 0.5), 3_600_000.0)  # poll takes no more than 24 days

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        self._ending.tick(now)
        if self._watch is not None and now >= self._watch.next_due():
            self._watch.look(now)
        if self._heeder is not None and now >= self._heeder.next_due():
            for said in self._heeder.look(now):
                self.reports.say(said)
        if self._probes is not None and now >= self._probes.next_due():
            for serving in self._probes.look(now):
                self.reports.say(serving)
        if self.crew is not None:
            self.crew.tick(now)
        self._reaper.tick(now)

    def obey(self, message: Down) -> None:
        """Do what the conductor says."""
        if type(message) is Start:
            self._start(message)
        elif type(message) is Ack:
            self.reports.written(message)
        elif type(message) is End:
            attempt = self._family.by_key.get(message.key)
            if (place := self.places.step_out(message.key)) is not None:
                self.reports.never_began(message.key, message.outcome, message.detail)
                self.places.let_go(message.key, place)
            elif attempt is not None:
                grace_s = message.grace_s if message.grace_s >= 0 else self._setup.grace_s
                self.end(attempt, message.outcome, message.detail, grace_s)
            elif self.crew is not None:
                grace_s = message.grace_s if message.grace_s >= 0 else self._setup.grace_s
                self.crew.end(message.key, message.outcome, message.detail, grace_s)
        elif type(message) is Base:
            self._open_base(message)
        elif type(message) is BaseOver:
            over = self._spawners.pop(message.number, None)
            if over is not None:
                over.writers.close()
            if self.crew is not None:
                self.crew.base_over(message.number)
        elif type(message) is Hold:
            self.shares[message.partition] = message.name
            self.reports.say(Held(message.partition))
        elif type(message) is Release:
            self.shares.pop(message.partition, None)
        elif type(message) is Sweep:
            self._end_strangers(message)
        elif type(message) is Serve:
            self._serve(message)
        elif type(message) is Define:
            self._with_crew().define(message)
        elif type(message) is Forget:
            self._with_crew().forget(message)

    def push(self) -> None:
        """Send what there is to tell, if it is time."""
        self._spawner.unbind()
        if self.crew is not None:
            self.crew.flush()
        self.reports.push()

    def farewell(self, outcome: Outcome, detail: str) -> None:
        """End everything, however long it takes up to a bound, and leave what nobody has written down in the spool."""
        grace_s = min(self._setup.grace_s, _FAREWELL_S)
        self.places.close()
        if self.crew is not None:
            self.crew.close()
        for attempt in list(self._family.leaders.values()):
            self.end(attempt, outcome, detail, grace_s)
        stop = time.monotonic() + grace_s + AGAIN_S * KILLS
        while self._family.leaders and time.monotonic() < stop:
            time.sleep(0.005)
            self.reap()
            self.tick()
        while not self._family.kill_everything() and time.monotonic() < stop:
            time.sleep(0.005)
            self.reap()
        if self.crew is not None:
            self.crew.leave()
        # A call is done when its result is there, and results die with us: whoever resumes calls again.
        left = [ended for ended in self.reports.unwritten() if not ended.result and not ended.path]
        if left and self._setup.spool:
            write_spool(os.path.join(self._setup.directory, self._setup.spool), left)

    # The life of an attempt

    def _start(self, start: Start) -> None:
        """Start it when its place is free."""
        place = self.places.of(start)
        if place is None:
            return
        if start.command.call is not None and not self.places.in_line(place) and self._with_crew().joins(start, place):
            return
        self.places.enter(start, place)

    def _begin(self, start: Start, place: Place) -> bool:
        try:
            if start.command.call is not None:
                self._with_crew().begin(start, place)
                return True
            pid, output = self.spawner(start.command.base).start(start, self._family.alive == 0)
        except NotStarted as error:
            self.reports.never_began(start.key, "unstartable", str(error))
            return False
        attempt = Attempt(start.key, pid, output, start.walltime_s, start.memory_mib, place)
        if start.stage is not None:
            attempt.staged = start
        self._family.add(attempt)
        if start.command.packed:
            words = start.command.argv
            if len(start.key) > 2:
                stream, streams = start.key[2:]
                words = (*as_stream(stream, streams, "RANK" in start.command.env), *words)
            attempt.by_hand = (start.command.cwd, words)
        self.reports.began(start.key, pid)
        if start.walltime_s > 0:
            self._ending.bound(attempt)
        if start.memory_mib > 0:
            self._with_watch().add(attempt)
        if start.command.launches:
            self._heed(attempt, start.command)
        return True

    def _with_crew(self) -> Crew:
        """The function workers of this node; there from the first call on."""
        if self.crew is None:
            from .calling.crew import Crew

            assert self._poll is not None
            self.crew = Crew(self._setup, self._family, self, self._poll)
            self.places.place_of_call = self.crew.place_of
        return self.crew

    def _with_watch(self) -> Watch:
        if self._watch is None:
            from .memory import Watch

            self._watch = Watch(self._family, self._setup.grace_s, self.end)
        return self._watch

    def _heed(self, attempt: Attempt, command: Command) -> None:
        if self._heeder is None:
            from .heeding import Heeder
            from .strangers import launcher_without_ranks

            bases = self._bases_of_launches

            def waiting(attempt: Attempt) -> str:
                run, task = bases[attempt.key].marks(attempt.key[0])
                return launcher_without_ranks(run, task, attempt.key[1], self._family.members(attempt))

            self._heeder = Heeder(waiting)
        self._bases_of_launches[attempt.key] = self._spawner
        self._heeder.add(attempt, command.launches_here)

    def _serve(self, serve: Serve) -> None:
        from .serving import Probes, with_what_it_needs

        try:
            start = with_what_it_needs(serve, self._setup)
        except OSError as error:
            self.reports.never_began(serve.start.key, "unstartable", f"writing its files: {error}")
            return
        self._start(start)
        if (attempt := self._family.by_key.get(start.key)) is not None:
            if self._probes is None:
                self._probes = Probes()
            self._probes.add(attempt, serve)

    def _end_strangers(self, sweep: Sweep) -> None:
        from .strangers import end_strangers

        ended = 0
        spawner = self._spawners.get(sweep.base)
        if spawner is not None:
            run, task = spawner.marks(sweep.key[0])
            ended = end_strangers(run, task, sweep.key[1])
        self.reports.say(Swept(sweep.key, ended))

    def _open_base(self, base: Base) -> None:
        self._spawner.unbind()  # what a spawner finds when it is made, it takes for the runner's own cores
        setup = msgspec.structs.replace(
            self._setup, directory=base.directory, env=base.env, hide_gpus=base.hide_gpus, packed=base.packed
        )
        self._spawners[base.number] = Spawner(setup, base.first, self._allowance)

    def spawner(self, base: int) -> Spawner:
        """Who starts processes for this base. Raises NotStarted for one that nobody opened."""
        found = self._spawners.get(base)
        if found is None:
            raise NotStarted(f"nobody said where the tasks of study {base} are at home")
        if found is not self._spawner:
            self._spawner.unbind()
            self._spawner = found
        return found

    def _conclude(self, attempt: Attempt) -> bool:
        """Report an attempt whose leader has ended if nothing else of it is left."""
        if attempt.reported:
            return True
        family = self._family
        if attempt.strays or family.may_have_more(attempt) or not (attempt.alone or family.is_over(attempt)):
            attempt.alone = False
            self._ending.end_the_rest(attempt)
            return False
        if self._was_worker(attempt):
            return True
        writer = attempt.output.writer
        self._tell(attempt)
        if writer is not None:
            writer.owner.give(writer)
        self.places.vacate(attempt)
        return True

    def _was_worker(self, attempt: Attempt) -> bool:
        """Whether it was a function worker; then its calls are told, and go on with another one."""
        if self.crew is None or not self.crew.has(attempt):
            return False
        self._family.drop(attempt)
        self.crew.gone(attempt)
        return True

    def _give_up(self, attempt: Attempt) -> None:
        """Something of it cannot be killed. Its writer is not used again: what is left may still write."""
        if attempt.status is None:
            self._family.alive -= 1
            attempt.status = signal.SIGKILL
            attempt.ended_at = clock.now()
        attempt.detail = "; ".join(filter(None, (attempt.detail, "some of its processes could not be killed")))
        if self._was_worker(attempt):
            return
        self._tell(attempt)
        self.places.vacate(attempt)

    def _tell(self, attempt: Attempt) -> None:
        status = attempt.status or 0
        failed = bool(status or attempt.outcome)
        output, tail = attempt.output.end(failed)
        detail = attempt.detail
        files: tuple[tuple[str, int, bytes], ...] = ()
        kept = 0
        if attempt.staged is not None:
            from .staging import fetch, what_stays

            directory = self.spawner(attempt.staged.command.base).directory
            files, lack = fetch(directory, attempt.staged, attempt.output, not failed)
            if not (failed or lack):
                kept, lack = what_stays(directory, attempt.staged)
            if lack and not failed:
                failed, attempt.outcome, detail = True, "failed", lack
        if failed:
            if not attempt.outcome:
                detail = "; ".join(filter(None, (how_it_ended(status), detail)))
            if tail:
                detail = f"{detail}\n{tail}"
            if attempt.by_hand is not None:
                detail = f"{detail}\nrun it again: {in_a_shell(*attempt.by_hand)}"
        self._family.drop(attempt)
        if self._watch is not None:
            self._watch.over(attempt.key)
        if self._probes is not None:
            self._probes.over(attempt.key)
        if self._heeder is not None:
            self._bases_of_launches.pop(attempt.key, None)
            if (said := self._heeder.over(attempt.key, failed)) is not None:
                self.reports.mention(said)
        left_in_line = self.places.in_line(attempt.place) - (not attempt.passed_on)
        untold = self.reports.untold_start(attempt.key)
        self.reports.over(
            Ended(
                self.reports.number(),
                attempt.key,
                attempt.ended_at,
                attempt.outcome or ("failed" if status else "done"),  # type: ignore[arg-type]
                os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                attempt.cpu_s,
                attempt.peak_mib,
                detail,
                output,
                untold.time if untold else 0.0,
                untold.pid if untold else 0,
                files,
                kept=kept,
            ),
            failed or left_in_line < ENOUGH_IN_LINE,
        )
        if failed:
            self.places.let_go(attempt.key, attempt.place)
