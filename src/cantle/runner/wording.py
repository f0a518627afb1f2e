"""How did a process end, in words that a person can act on?"""

from __future__ import annotations

import os
import signal

_TAIL_BYTES = 2048
_TAIL_LINES = 10

_SHELL_CODES = {126: "found, but not executable", 127: "command not found"}


def signal_name(number: int) -> str:
    """`SIGKILL`; real-time signals by number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(status: int) -> str:
    """A wait status that is not success, as a phrase: `exit code 3`, `killed by SIGSEGV`."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        text = f"killed by {signal_name(number)}"
        if os.WCOREDUMP(status):
            return f"{text} (core dumped)"
        if number == signal.SIGKILL:
            return f"{text} (not by Cantle; the kernel does that when memory runs out)"
        return text
    code = os.WEXITSTATUS(status)
    if code in _SHELL_CODES:
        return f"exit code {code} ({_SHELL_CODES[code]})"
    if code > 128 and code - 128 in signal.valid_signals():
        return f"exit code {code} (128 + {signal_name(code - 128)})"
    return f"exit code {code}"


def duration(seconds: float) -> str:
    """`90 s`, `1.5 s`: seconds as people write them."""
    return f"{seconds:g} s"


def last_lines(fd: int, start: int, end: int) -> str:
    """The last few lines of the bytes from `start` to `end` of a file, never more than 2 KiB of them."""
    begin = max(start, end - _TAIL_BYTES)
    try:
        data = os.pread(fd, end - begin, begin)
    except OSError:
        return ""
    text = data.decode("utf-8", "replace").replace("\0", "").rstrip()
    cut = begin > start
    lines = text.split("\n")
    if cut and len(lines) > 1:
        lines = lines[1:]
    elif cut and text:
        lines[0] = "…" + lines[0].lstrip("\ufffd")
    return "\n".join(line.rstrip("\r") for line in lines[-_TAIL_LINES:])


def why_not_started(error: OSError | ValueError, doing: str) -> str:
    """Why no process could be started: `no such file: /bin/zsh (starting the task)`."""
    if not isinstance(error, OSError):
        return f"{doing}: {error}"
    from errno import E2BIG, EACCES, EAGAIN, EDQUOT, EMFILE, ENFILE, ENOENT, ENOEXEC, ENOSPC, ENOTDIR, EROFS

    words = {
        ENOENT: "no such file or directory",
        ENOTDIR: "a part of the path is no directory",
        EACCES: "permission denied, or not executable",
        ENOEXEC: "not a program that this machine can run (a script needs a #! line)",
        E2BIG: "the arguments and the environment are longer than the system allows",
        EAGAIN: "the limit on the number of processes is reached (ulimit -u)",
        ENOSPC: "the disk is full",
        EDQUOT: "the disk quota is used up",
        EROFS: "the file system is read-only",
        EMFILE: "too many open files (ulimit -n)",
        ENFILE: "too many open files on this machine",
    }
    return f"{doing}: {words.get(error.errno or 0, error.strerror or str(error))}"


def in_a_shell(directory: str, words: tuple[str, ...]) -> str:
    """What to type to run these words there."""
    from shlex import quote

    command = " ".join(quote(word) if word.isprintable() else in_dollar_quotes(word) for word in words)
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]} …"
    return f"cd {quote(directory)} && {command}" if directory else command


def in_dollar_quotes(word: str) -> str:
    """The word as a shell takes it, with what a terminal would act on as numbers: `$'a\\x1bb'`."""
    safe = "".join(
        c if c.isprintable() and c not in "'\\" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(c)) for c in word
    )
    return f"$'{safe}'"


def as_stream(stream: int, streams: int, communicates: bool) -> tuple[str, ...]:
    """The words that stand before a command, so that it runs as this stream of so many."""
    rank = (f"RANK={stream}", f"WORLD_SIZE={streams}") if communicates else ()
    return ("env", f"CANTLE_STREAM={stream}", f"CANTLE_STREAMS={streams}", *rank)


_LONGEST_COMMAND = 2000
