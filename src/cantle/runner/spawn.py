"""How does a command become a process? Everything between a `Start` and `posix_spawn` with its result.

posix_spawn because it neither copies the runner's memory map nor runs Python between fork and exec. What it has no attribute
for, the runner does to itself just before, and the child inherits: the working directory, and the cores, so that a task is
(nearly always) bound from its first instruction. Descriptors 0, 1 and 2 of the runner are /dev/null; all others close on exec.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH118, PTH119

from __future__ import annotations

import os
import signal

from cantle.model.resources import indexes, list_to_mask

from . import gpus
from .messages import RUN, Setup, Start
from .packed import Allowance, Writer, Writers
from .processes import current_core, descendants
from .wording import last_lines, why_not_started

_OUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SCRIPT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the runner ignores, or Python, or whatever a shell begins in the background. Handlers become the default by
themselves."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish"})

_STEP_OF_THE_RUNNER = "starting the task"


class NotStarted(Exception):
    """No process could be started; the text says why."""


class Output:
    """Where one attempt's stdout and stderr go: files of its own (`stem`), a writer, or nowhere."""

    __slots__ = ("err", "out", "writer")

    def __init__(self, writer: Writer | None = None, out: str = "", err: str = "") -> None:
        self.writer = writer
        self.out = out
        self.err = err

    def end(self, failed: bool) -> tuple[str, str]:
        """The range in packed files ("" for files of its own), and the last lines of stderr if it failed."""
        if self.writer is not None:
            return self.writer.end(failed)
        if not failed or not self.err:
            return "", ""
        try:
            fd = os.open(self.err, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return "", ""
        try:
            return "", last_lines(fd, 0, os.lseek(fd, 0, os.SEEK_END))
        except OSError:
            return "", ""
        finally:
            os.close(fd)


class Spawner:
    """Starts processes under one setup. Tasks are told their numbers counted from `first`."""

    def __init__(self, setup: Setup, first: int = 0, allowance: Allowance | None = None) -> None:
        self.first = first
        self._setup = setup
        self.directory = setup.directory
        self._env = dict(setup.env)
        self._env[b"CANTLE_RUNNER"] = b"%d" % os.getpid()
        if first:
            self._env[b"CANTLE_FIRST"] = b"%d" % first
        self._amd = bool(setup.gpu_ids) and gpus.machine_is_amd()
        if setup.hide_gpus:
            self._env.update(gpus.hidden())
        self.writers = Writers(setup.directory, setup.packed, allowance)
        self._programs: dict[tuple[str, bytes], str] = {}
        self._core_sets: dict[str, frozenset[int]] = {}
        self._home_cores = frozenset(os.sched_getaffinity(0)) if setup.core_ids else frozenset[int]()
        self._on_cores = self._home_cores

    def start(self, start: Start, alone: bool = False) -> tuple[int, Output]:
        """Start the attempt's process: its pid, which is its group and session as well. Raises NotStarted.

        `alone`: nothing else runs on this node.
        """
        command = start.command
        doing = _STEP_OF_THE_RUNNER
        output: Output | None = None
        fds: tuple[int, int] = (-1, -1)
        try:
            env = self._environment(start)
            if start.stage is not None:
                from .staging import put

                doing = "writing the files that were staged for it"
                put(self.directory, start.stage.files)
            doing = f"entering the working directory {command.cwd or '.'}"
            cwd = command.cwd
            self._enter(cwd if cwd[:1] == "/" else f"{self.directory}/{cwd}" if cwd else self.directory)
            argv = command.argv
            for path, text in command.files.items():
                doing = f"writing {path}"
                self._write_script(path, text, start.key[2:])
            if command.script_path:
                path = os.path.join(self.directory, command.script_path)
                doing = f"writing {path}"
                self._write_script(path, command.script, start.key[2:])
                argv = (*command.shell, path)
            if not argv:
                raise NotStarted("there is nothing to run: the command is empty")
            doing = "opening the files for its output"
            if command.packed:
                output = Output(self.writers.take())
                fds = output.writer.start()  # type: ignore[union-attr]
            elif command.output_stem:
                stem = os.path.join(self.directory, command.output_stem)
                mark = stem if len(start.key) > 2 else f"{stem}.{start.key[0]}-{start.key[1]}"
                output = Output(None, f"{mark}.out", f"{mark}.err")
                fds = self._open_own(output)
            else:
                output = Output()
            doing = f"starting {argv[0]}"
            bound = self._bound_to(start.cores) if start.cores else self._home_cores
            exact = self._lean_towards(bound, alone)
            pid = self._spawn(argv, env, fds)
            if exact:
                self.unbind()
            else:
                self._bind(pid, bound, os.path.basename(argv[0]) in _SHELLS)
        except (OSError, ValueError) as error:
            if output is not None:
                self._give_up(output, fds)
            raise NotStarted(why_not_started(error, doing)) from None
        if output.writer is None and output.out:
            os.close(fds[0])
            os.close(fds[1])
            if len(start.key) == 2:  # the files of a part have its number already
                self._name_after(output, command.output_stem, pid, start.key[1])
        return pid, output

    def marks(self, task: int) -> tuple[bytes, int]:
        """By what the processes of this task know their run, and by which number it."""
        return self._env.get(RUN, b""), task - self.first

    def unbind(self) -> None:
        """Give the runner itself back all of its cores, once a batch is started: it must not wait for a busy one."""
        if self._on_cores != self._home_cores:
            os.sched_setaffinity(0, self._home_cores)
            self._on_cores = self._home_cores

    def _environment(self, start: Start) -> dict[bytes, bytes]:
        env = self._env
        command = start.command
        if command.env or start.gpus:
            env = env.copy()
            if start.gpus:
                env.update(self._gpu_variables(start.gpus))
            for name, value in command.env.items():
                if value is None:
                    env.pop(os.fsencode(name), None)
                else:
                    env[os.fsencode(name)] = os.fsencode(value)
        env[b"CANTLE_TASK"] = b"%d" % (start.key[0] - self.first)
        env[b"CANTLE_ATTEMPT"] = b"%d" % start.key[1]
        env[b"CANTLE_CORES"] = start.cores.encode()
        return env

    def _gpu_variables(self, chosen: str) -> dict[bytes, bytes]:
        ids = self._setup.gpu_ids
        places = indexes(list_to_mask(chosen))
        return gpus.visible(tuple(ids[i] if i < len(ids) else str(i) for i in places), self._amd)

    def _enter(self, directory: str) -> None:
        try:
            os.chdir(directory)
        except FileNotFoundError:
            os.makedirs(directory, exist_ok=True)
            os.chdir(directory)

    def _write_script(self, path: str, text: str, part: tuple[int, ...]) -> None:
        """Write the script. Parts of one attempt on several nodes write the same file: each puts it there whole."""
        beside = f"{path}.{part[0]}.new" if part else path
        try:
            fd = os.open(beside, _SCRIPT_FLAGS, 0o755)
        except FileNotFoundError:
            os.makedirs(path.rpartition("/")[0], exist_ok=True)
            fd = os.open(beside, _SCRIPT_FLAGS, 0o755)
        try:
            data = text.encode()
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        if part:
            os.rename(beside, path)

    def _open_own(self, output: Output) -> tuple[int, int]:
        try:
            out = os.open(output.out, _OUT_FLAGS, 0o666)
        except FileNotFoundError:
            os.makedirs(output.out.rpartition("/")[0], exist_ok=True)
            out = os.open(output.out, _OUT_FLAGS, 0o666)
        try:
            return out, os.open(output.err, _OUT_FLAGS, 0o666)
        except OSError:
            os.close(out)
            os.unlink(output.out)
            raise

    def _name_after(self, output: Output, stem: str, pid: int, attempt: int) -> None:
        """Give the files their pid. What an earlier attempt with the same pid left (pids start anew in a container) stays."""
        stem = os.path.join(self.directory, f"{stem}.{pid}")
        for end in ("out", "err"):
            old, new = getattr(output, end), f"{stem}.{end}"
            try:
                if attempt > 1 and os.path.lexists(new):
                    os.rename(new, f"{stem}.before-{attempt}.{end}")
                os.rename(old, new)
                setattr(output, end, new)
            except OSError:  # the task was quick to remove its own directory
                pass

    def _give_up(self, output: Output, fds: tuple[int, int]) -> None:
        if output.writer is not None:
            self.writers.give(output.writer)
        elif fds[0] >= 0:
            for fd, path in zip(fds, (output.out, output.err), strict=True):
                os.close(fd)
                try:
                    os.unlink(path)
                except OSError:
                    pass

    def _bound_to(self, cores: str) -> frozenset[int]:
        """The operating system's numbers of these cores of the node."""
        chosen = self._core_sets.get(cores)
        if chosen is None:
            ids = self._setup.core_ids
            chosen = frozenset(ids[i] for i in indexes(list_to_mask(cores)) if i < len(ids)) or self._home_cores
            self._core_sets[cores] = chosen
        return chosen

    def _lean_towards(self, bound: frozenset[int], alone: bool) -> bool:
        """Give the runner cores of which a child, which inherits them, shall have all; whether it shall have all of them.

        The core on which the runner is right now stays among them, because a move costs more than a spawn. So a child is
        bound from its first instruction, or is for some microseconds free to use one core more. Where there are few cores,
        the runner keeps all of them, but for a child that it can share its core with because the others idle.
        """
        if bound == self._home_cores:
            return True
        here = current_core()
        if len(self._home_cores) <= 2 * len(bound) and not (alone and here in bound):
            return False
        wanted = bound if here in bound or here < 0 else bound | {here}
        if wanted != self._on_cores:
            os.sched_setaffinity(0, wanted)
            self._on_cores = wanted
        return wanted == bound

    def _bind(self, pid: int, bound: frozenset[int], forks: bool) -> None:
        """Bind a child from outside, and what it may have forked already: shells do so at once."""
        try:
            os.sched_setaffinity(pid, bound)
            bound_already = {pid}
            while forks and (late := [each for each in descendants(pid) if each not in bound_already]):
                for each in late:  # begun before its parent was bound
                    bound_already.add(each)
                    os.sched_setaffinity(each, bound)
        except ProcessLookupError:  # it was that quick
            pass

    def _spawn(self, argv: tuple[str, ...], env: dict[bytes, bytes], fds: tuple[int, int]) -> int:
        program = argv[0]
        if "/" not in program:
            program = self._find(program, env)
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=((os.POSIX_SPAWN_DUP2, fds[0], 1), (os.POSIX_SPAWN_DUP2, fds[1], 2)) if fds[0] >= 0 else (),
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )

    def _find(self, name: str, env: dict[bytes, bytes]) -> str:
        """Where the task's own PATH has the program (libc would search the runner's)."""
        path = env.get(b"PATH", b"/usr/local/bin:/bin:/usr/bin")
        found = self._programs.get((name, path))
        if found is not None and os.access(found, os.X_OK):
            return found
        for part in os.fsdecode(path).split(":"):
            found = f"{part or '.'}/{name}"
            if os.access(found, os.X_OK) and not os.path.isdir(found):
                if found.startswith("/"):
                    self._programs[name, path] = found
                return found
        raise ValueError(f"no program of this name in PATH ({os.fsdecode(path)})")
