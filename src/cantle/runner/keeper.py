"""What becomes of the attempts on a node? They are started, bounded in time and memory, ended, waited for and told.

Reports go up one frame a turn. That an attempt has started is told when it has run for a moment; if it is over by then, its
end tells both.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import signal
import time
from collections import deque
from heapq import heapify, heappop, heappush
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING

import msgspec

from cantle.model.records import Outcome
from cantle.model.study import Command

from . import processes
from .channel import RunnersEnd
from .family import Attempt, Family, Place, send_to_group
from .frames import encode, frame
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
    Leaving,
    Release,
    Serve,
    Setup,
    Start,
    Started,
    Sweep,
    Swept,
)
from .packed import Allowance
from .spawn import NotStarted, Spawner
from .spool import write_spool
from .wording import as_stream, duration, how_it_ended, in_a_shell

if TYPE_CHECKING:
    import select

    from .calling.crew import Crew
    from .heeding import Heeder
    from .serving import Probes

_HOLD_S = 0.035
"""That an attempt has started is told when it has run for so long. Who is over by then tells both with the end."""
_HOLD_END_S = 0.020
"""How long the news of an end may be held, while others stand in line for its place and nobody idles.

Each message costs its reader, and all through whose hands it goes, more than ten results do.
"""
_ENOUGH_IN_LINE = 2
_NEVER_BEGAN = "it never began, because the task that it was to follow did not succeed"
_SWEEP_S = 1.0
_WATCH_S = 0.25
_LOOK_CHEAP_S = 0.0001
_LOOK_FEW = 8
_LOOK_TOGETHER_S = 0.010
"""So long ends may wait to be concluded together, where few run here and others have the places meanwhile.

To conclude one is little work, but all that it takes has left the core's caches since the last one: that costs more than the
work, and so does what it drives out of them, which the next task must fetch again.
"""
_LOOK_RATIO = 10
"""The kernel's list of children takes microseconds for a few, half a millisecond for hundreds: then it is read at most for
a tenth of the time, and ends are concluded that little later."""
_AGAIN_S = 0.1
"""Between one KILL and the next, while something is left."""
_KILLS = 50
"""After so many KILLs an attempt is reported although something is left (in an uninterruptible wait)."""
_FAREWELL_S = 2.0
"""The longest grace once the conductor has gone."""


class Keeper:
    """Keeps the attempts of one node, for one conductor over one channel, under one setup."""

    def __init__(self, channel: RunnersEnd, setup: Setup, poll: select.poll | None = None) -> None:
        self._channel = channel
        self._setup = setup
        self._family = Family()
        self._allowance = Allowance()
        self._spawner = Spawner(setup, allowance=self._allowance)
        self._spawners = {0: self._spawner}
        """By base; `_spawner` is the one that was used last."""
        self._up: list[bytes] = []
        self._starts: dict[Key, tuple[float, Started]] = {}
        """Starts that were not told yet, oldest first, each with the time (monotonic) at which it is told."""
        self._urgent = False
        self._hold_until = 0.0
        self._number = 0
        self._floor_kib = 0
        self._unwritten: deque[Ended] = deque()
        self._kept: dict[int, Ended] = {}
        """By number, results that the conductor has, of attempts of which other parts are not over."""
        self._alarms: list[tuple[float, Key, Attempt]] = []
        self._watched: dict[Key, Attempt] = {}
        self._next_watch = 0.0
        self._heeder: Heeder | None = None
        self._probes: Probes | None = None
        self._poll = poll
        self.crew: Crew | None = None
        self._bases_of_launches: dict[Key, Spawner] = {}
        self._next_sweep = 0.0
        self._closing: list[Attempt] = []
        self._lines: dict[Place, deque[Start]] = {}
        self._in_line: dict[Key, Place] = {}
        self._next_look = 0.0
        self._dear_until = 0.0
        self._look_due = False
        self.shares: dict[int, str] = {}
        """Partitions that have a share of this node, by number, and what they are called."""

    # What the loop calls

    def wait_ms(self) -> float | None:
        """How long the loop may sleep, in milliseconds; None: until something happens."""
        first = float("inf")
        if self._up:
            first = self._hold_until
        if self._starts:
            first = min(first, next(iter(self._starts.values()))[0])
        if self._alarms:
            first = min(first, self._alarms[0][0])
        if self._watched:
            first = min(first, self._next_watch)
        if self._heeder is not None:
            first = min(first, self._heeder.next_due())
        if self._probes is not None:
            first = min(first, self._probes.next_due())
        if self.crew is not None:
            first = min(first, self.crew.next_due())
        if self._look_due:
            first = min(first, self._next_look)
        if self._family.leaders:
            first = min(first, self._next_sweep)
        if first == float("inf"):
            return None
        return min(max(0.0, (first - time.monotonic()) * 1000 + 0.5), 3_600_000.0)  # poll takes no more than 24 days

    def reap(self) -> None:
        """Wait for all children that have ended, and report the attempts that are over."""
        family = self._family
        ended = self._closing
        looking = True
        while looking:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            cpu_s = usage.ru_utime + usage.ru_stime
            attempt = family.leaders.get(pid)
            if attempt is None or attempt.status is not None:
                family.gone(pid, cpu_s, self._told(usage.ru_maxrss))
                continue
            attempt.status = status
            attempt.ended_at = time.time()
            attempt.cpu_s += cpu_s
            attempt.peak_mib = max(attempt.peak_mib, self._told(usage.ru_maxrss))
            family.alive -= 1
            ended.append(attempt)
            if not attempt.outcome:  # it ended by itself: nothing of it shall stay, and the next in line need not wait
                attempt.alone = not send_to_group(pid, signal.SIGKILL)
                self._pass_on(attempt)
            looking = _more_have_ended()
        now = time.monotonic()
        if not self._can_wait(ended, now):
            self._next_look = self._dear_until
        elif not self._look_due:
            self._next_look = max(self._dear_until, now + _LOOK_TOGETHER_S)
        if now < self._next_look:
            self._look_due = True
            return
        family.adopt()
        taken = time.monotonic() - now
        dear = taken > _LOOK_CHEAP_S and family.alive > _LOOK_FEW  # a few cannot be: others had the core meanwhile
        self._dear_until = now + _LOOK_RATIO * taken if dear else 0.0
        self._look_due = False
        if ended:
            self._closing = [attempt for attempt in ended if not self._conclude(attempt)]

    def _can_wait(self, ended: list[Attempt], now: float) -> bool:
        """Whether nobody is the worse for it if these are concluded a little later."""
        if not ended or self._family.alive > _LOOK_FEW:
            return False  # many end together anyway, and each that waits has files open
        for attempt in ended:
            if attempt.status or attempt.outcome or not (attempt.alone and attempt.passed_on):
                return False
            if len(self._lines.get(attempt.place, ())) < _ENOUGH_IN_LINE:
                return False
            if (start := self._starts.get(attempt.key)) is not None and start[0] < now + _LOOK_TOGETHER_S:
                return False  # its start would be told meanwhile, as if it took longer
        return True

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        while self._alarms and self._alarms[0][0] <= now:
            when, _, attempt = heappop(self._alarms)
            if attempt.due == when and not attempt.reported:
                self._due(attempt, now)
        if self._watched and now >= self._next_watch:
            self._watch()
            taken = time.monotonic() - now
            self._next_watch = now + min(max(_WATCH_S, 50 * taken), 4 * _WATCH_S)
        if self._heeder is not None and now >= self._heeder.next_due():
            for said in self._heeder.look(now):
                self._up.append(encode(said))
                self._urgent = True
        if self._probes is not None and now >= self._probes.next_due():
            self._up += map(encode, self._probes.look(now))
            self._urgent = True
        if self.crew is not None:
            self.crew.tick(now)
        if self._family.leaders and now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_S
            self.reap()
        elif self._look_due and now >= self._next_look:
            self.reap()

    def obey(self, message: Down) -> None:
        """Do what the conductor says."""
        if type(message) is Start:
            self._start(message)
        elif type(message) is Ack:
            but = set(message.but)
            while self._unwritten and self._unwritten[0].number <= message.number:
                result = self._unwritten.popleft()
                if result.number in but:
                    self._kept[result.number] = result
            for number in message.over:
                self._kept.pop(number, None)
        elif type(message) is End:
            attempt = self._family.by_key.get(message.key)
            if (place := self._in_line.pop(message.key, None)) is not None:
                self.never_began(message.key, message.outcome, message.detail)
                self.let_go(message.key, place)
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
            self._up.append(encode(Held(message.partition)))
            self._urgent = True
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
        if self._channel.backlog:
            self._channel.send(b"")  # what the conductor did not take yet, also when there is nothing new to tell
        if not self._up and not self._starts:
            return
        now = time.monotonic()
        told = []
        while self._starts and (first := next(iter(self._starts.items())))[1][0] <= now:
            told.append(encode(first[1][1]))
            del self._starts[first[0]]
        if told or (self._up and (self._urgent or now >= self._hold_until)):
            self._channel.send(frame([*self._up, *told]))  # an end goes before the start of what followed it
            self._up.clear()
            self._urgent = False

    def farewell(self, outcome: Outcome, detail: str) -> None:
        """End everything, however long it takes up to a bound, and leave what nobody has written down in the spool."""
        grace_s = min(self._setup.grace_s, _FAREWELL_S)
        self._in_line.clear()  # what has not begun needs no end: whoever resumes launches it again
        if self.crew is not None:
            self.crew.close()
        for attempt in list(self._family.leaders.values()):
            self.end(attempt, outcome, detail, grace_s)
        stop = time.monotonic() + grace_s + _AGAIN_S * _KILLS
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
        left = [ended for ended in (*self._kept.values(), *self._unwritten) if not ended.result and not ended.path]
        if left and self._setup.spool:
            write_spool(os.path.join(self._setup.directory, self._setup.spool), left)

    def leave(self, reason: str) -> None:
        """Tell the conductor, if it still listens, that the runner ends by itself."""
        try:
            self._up.append(encode(Leaving(reason)))
            self._channel.send(frame(self._up))
            self._up.clear()
        except OSError:
            pass

    # The life of an attempt

    def _start(self, start: Start) -> None:
        """Start it, or let it stand in line, if another attempt is on the same cores or the one that it follows is not over."""
        place = (start.cores, start.gpus) if start.cores and start.key[0] >= 0 else ("", str(start.key))
        ahead = None
        if start.after is not None:
            ahead = self._family.by_key.get(start.after)
            if ahead is not None:
                place = ahead.place
            elif start.after in self._in_line:
                place = self._in_line[start.after]
            elif self.crew is not None and (found := self.crew.place_of(start.after)) is not None:
                place = found
            elif not self._was_done(start.after):
                self.never_began(start.key, "interrupted", _NEVER_BEGAN)
                return
        line = self._lines.get(place)
        if start.command.call is not None and not line and self._with_crew().joins(start, place):
            return
        if line is not None or ahead is not None:
            self._in_line[start.key] = place
            if line is not None:
                line.append(start)
            elif ahead is not None:  # its place was passed on, to one that is over by now: it is held for this one
                ahead.passed_on = False
                self._lines[place] = deque((start,))
            return
        self._lines[place] = deque()
        if not self._begin(start, place):
            self._next_in(place)

    def _was_done(self, key: Key) -> bool:
        """Whether the attempt is over and was done. Asked about those alone whose end the conductor has not heard of."""
        return self.made(key) is not None

    def made(self, key: Key) -> Ended | None:
        """The end of an attempt that was done, of which the conductor may not have heard yet."""
        for ended in reversed(self._unwritten):
            if ended.key == key and ended.outcome == "done":
                return ended
        return None

    def never_began(self, key: Key, outcome: Outcome, detail: str) -> None:
        """Tell the conductor that the attempt is over without having begun."""
        self.report(Ended(self.number(), key, time.time(), outcome, detail=detail))

    def let_go(self, key: Key, place: Place) -> None:
        """The attempt was not done: who was to follow it goes back to the conductor, and who was to follow those."""
        if len(key) > 2:  # nobody follows a mere part, and thousands of them may stand in line
            return
        gone = {key}
        for start in self._lines.get(place, ()):
            if start.after in gone and self._in_line.pop(start.key, None) is not None:
                self.never_began(start.key, "interrupted", _NEVER_BEGAN)
                gone.add(start.key)

    def _pass_on(self, attempt: Attempt) -> None:
        """The attempt is over: the next in line for its place begins."""
        if not attempt.passed_on and self._lines[attempt.place]:
            attempt.passed_on = True
            self._next_in(attempt.place)

    def _vacate(self, attempt: Attempt) -> None:
        """The attempt is told: its place is free, or the next in line has it."""
        if not attempt.passed_on:
            self._next_in(attempt.place)

    def _next_in(self, place: Place) -> None:
        line = self._lines[place]
        while line:
            start = line[0]
            if start.key in self._in_line:
                if start.after is not None and (ahead := self._family.by_key.get(start.after)) is not None:
                    ahead.passed_on = False  # something of it is left: nobody has its place before that is gone
                    return
                del self._in_line[start.key]
                line.popleft()
                if self._begin(start, place):
                    return
                self.let_go(start.key, place)
            else:
                line.popleft()
        del self._lines[place]

    def _begin(self, start: Start, place: Place) -> bool:
        try:
            if start.command.call is not None:
                self._with_crew().begin(start, place)
                return True
            pid, output = self.spawner(start.command.base).start(start, self._family.alive == 0)
        except NotStarted as error:
            self.never_began(start.key, "unstartable", str(error))
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
        self._starts[start.key] = (time.monotonic() + _HOLD_S, Started(start.key, time.time(), pid))
        if start.walltime_s > 0:
            self._alarm(attempt, time.monotonic() + start.walltime_s)
        if start.memory_mib > 0:
            self._watched[start.key] = attempt
        if start.command.launches:
            self._heed(attempt, start.command)
        return True

    def _with_crew(self) -> Crew:
        """The function workers of this node; there from the first call on."""
        if self.crew is None:
            from .calling.crew import Crew

            assert self._poll is not None
            self.crew = Crew(self._setup, self._family, self, self._poll)
        return self.crew

    def free(self, place: Place) -> None:
        """No call has this place any more: the next in line for it begins."""
        self._next_in(place)

    def tell(self, started: Started) -> None:
        """Tell the conductor that a call takes longer than a moment."""
        self._up.append(encode(started))
        self._urgent = True

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
            self.never_began(serve.start.key, "unstartable", f"writing its files: {error}")
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
        self._up.append(encode(Swept(sweep.key, ended)))
        self._urgent = True

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

    def end(self, attempt: Attempt, outcome: Outcome, detail: str, grace_s: float) -> None:
        """TERM now, KILL after the grace. Whoever comes second can only shorten the grace."""
        due = time.monotonic() + grace_s
        if attempt.outcome:
            if due < attempt.due:
                self._alarm(attempt, due)
            return
        if attempt.status is None and os.waitid(os.P_PID, attempt.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return  # it has ended by itself, and the next look at the children tells how
        if attempt.status is None:
            attempt.outcome = outcome
            attempt.detail = detail
            self._family.signal(attempt, signal.SIGTERM)
        self._alarm(attempt, due)

    def _due(self, attempt: Attempt, now: float) -> None:
        if attempt.status is None and not attempt.outcome:
            self.reap()  # it may have ended just in time
            if attempt.status is None:
                detail = f"ran into its walltime of {duration(attempt.walltime_s)}"
                self.end(attempt, "timeout", detail, self._setup.grace_s)
            return
        attempt.kills += 1
        if attempt.kills > _KILLS:
            self._give_up(attempt)
            return
        self._family.signal(attempt, signal.SIGKILL)
        self._alarm(attempt, now + _AGAIN_S)

    def _watch(self) -> None:
        """Look at the memory of those that have a bound. The parts of one attempt share theirs."""
        together: dict[Key, list[Attempt]] = {}
        for key, attempt in self._watched.items():
            if not attempt.outcome and attempt.status is None:
                together.setdefault(key[:2], []).append(attempt)
        for attempts in together.values():
            members = [self._family.members(attempt) for attempt in attempts]
            used = list(map(processes.resident_mib, members))
            most = attempts[0].memory_mib
            if sum(used) > most:
                used = list(map(processes.proportional_mib, members))
            for attempt, mib in zip(attempts, used, strict=True):
                attempt.peak_mib = max(attempt.peak_mib, mib)
            if sum(used) > most:
                detail = f"used {sum(used):.0f} MiB of memory, asked for {most} MiB"
                for attempt in attempts:
                    self.end(attempt, "memory", detail, min(self._setup.grace_s, 1.0))

    def _conclude(self, attempt: Attempt) -> bool:
        """Report an attempt whose leader has ended if nothing else of it is left."""
        if attempt.reported:
            return True
        if attempt.strays or not (attempt.alone or self._family.is_over(attempt)):
            attempt.alone = False
            if not attempt.outcome and not attempt.kills:
                attempt.kills = 1
                self._alarm(attempt, time.monotonic() + _AGAIN_S)
            return False
        if self._was_worker(attempt):
            return True
        writer = attempt.output.writer
        self._tell(attempt)
        if writer is not None:
            writer.owner.give(writer)
        self._vacate(attempt)
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
            attempt.ended_at = time.time()
        attempt.detail = "; ".join(filter(None, (attempt.detail, "some of its processes could not be killed")))
        if self._was_worker(attempt):
            return
        self._tell(attempt)
        self._vacate(attempt)

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
        if attempt.memory_mib:
            self._watched.pop(attempt.key, None)
        if self._probes is not None:
            self._probes.over(attempt.key)
        if self._heeder is not None:
            self._bases_of_launches.pop(attempt.key, None)
            if (said := self._heeder.over(attempt.key, failed)) is not None:
                self._up.append(encode(said))
        left_in_line = len(self._lines.get(attempt.place, ())) - (not attempt.passed_on)
        untold = self._starts.pop(attempt.key, (0.0, None))[1]
        self.report(
            Ended(
                self.number(),
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
            failed or left_in_line < _ENOUGH_IN_LINE,
        )
        if failed:
            self.let_go(attempt.key, attempt.place)

    def report(self, ended: Ended, urgent: bool = True) -> None:
        """Tell the conductor, at once if it is urgent."""
        if urgent:
            self._urgent = True
        else:
            soon = time.monotonic() + _HOLD_END_S
            self._hold_until = min(self._hold_until, soon) if self._up else soon
        self._unwritten.append(ended)
        self._up.append(encode(ended))

    def number(self) -> int:
        """The number of the next result."""
        self._number += 1
        return self._number

    def _told(self, maxrss_kib: int) -> float:
        """A child's peak memory in MiB, 0 when it cannot be told: the kernel counts from the size of the runner itself."""
        if maxrss_kib <= self._floor_kib:
            return 0.0
        self._floor_kib = getrusage(RUSAGE_SELF).ru_maxrss
        return maxrss_kib / 1024 if maxrss_kib > self._floor_kib else 0.0

    def _alarm(self, attempt: Attempt, when: float) -> None:
        attempt.due = when
        heappush(self._alarms, (when, attempt.key, attempt))
        if len(self._alarms) > 256 + 4 * len(self._family.leaders):
            self._alarms = [alarm for alarm in self._alarms if alarm[2].due == alarm[0] and not alarm[2].reported]
            heapify(self._alarms)


def _more_have_ended() -> bool:
    """Whether there is a child to wait for. To ask so costs half of what `wait4` takes to say that there is none."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
