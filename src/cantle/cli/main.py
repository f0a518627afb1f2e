"""Which command was meant? The command line's front door; the commands themselves are loaded when they are called."""

# ruff: noqa: E402 (what comes before the imports is there to make them quick)

from __future__ import annotations

import gc
import sys

# Imports make no garbage worth looking for.
gc.disable()

import os
from importlib import import_module
from typing import NoReturn

import cantle.cli.lean  # noqa: F401
from cantle import __version__
from cantle.cli.command import USAGE_ERROR, Command, Parser
from cantle.errors import CantleError, printable

COMMANDS = {
    "run": ("cantle.cli.running", "Run a study on this machine."),
    "map": ("cantle.cli.mapping", "Run one command for many values."),
    "resume": ("cantle.cli.resuming", "Go on with a run that ended before its work did."),
    "status": ("cantle.cli.watching", "Show how far a run is."),
    "wait": ("cantle.cli.watching", "Wait until a run is over."),
    "logs": ("cantle.cli.watching", "Print what a task printed."),
    "explain": ("cantle.cli.watching", "Say why a task does not run, or what became of it."),
    "cancel": ("cantle.cli.asking", "Cancel a run, or some of its tasks."),
    "update": ("cantle.cli.asking", "Change the limits of a run while it goes on."),
    "partition": ("cantle.cli.partitioning", "Make, show, resize and end partitions while a run goes on."),
    "node": ("cantle.cli.nodes", "Show, drain and resume the nodes of a run while it goes on."),
    "up": ("cantle.cli.pilots", "Hold this machine for several studies: begin a pilot."),
    "submit": ("cantle.cli.submitting", "Give a study to a pilot."),
    "jobs": ("cantle.cli.pilots", "Show the studies of a pilot."),
    "down": ("cantle.cli.pilots", "End a pilot."),
    "runner": ("cantle.cli.serving", "Serve a run on another machine: start its runner here."),
    "orchestrate": ("cantle.cli.orchestrating", "Run a study, or any command, in a batch job."),
    "validate": ("cantle.cli.foreseeing", "Check studies and report every problem."),
    "plan": ("cantle.cli.planning", "Say what would become of a study on these nodes or those, before any are held."),
    "report": ("cantle.cli.reporting", "Write a page that shows how a run went."),
    "simulate": ("cantle.cli.foreseeing", "Run a study in simulated time on machines that need not exist."),
}

CONDUCTING = ("run", "map", "resume", "up")
"""Commands that mpirun, srun and their like may start on many machines at once."""
RANKS = (
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
    "SLURM_STEP_NUM_TASKS",
)
"""One of these is set wherever we may be one of several copies."""

INTRODUCTION = """\
usage: cantle COMMAND ...

Run a whole workflow inside the machines that you already hold.

    cantle run study.yaml             run a Maestro study here, in parallel
    cantle map 'sim --seed {}' --range 1-1000
    cantle status DIR                 look at a run, from any shell
    cantle resume DIR                 go on where it ended

Commands:
"""

_MOST_OF_A_NAME = 300

CLOSING = """
'cantle COMMAND --help' tells more of each. Completion in the shell (needs the package argcomplete):
    eval "$(register-python-argcomplete cantle)"
"""


def command_named(name: str) -> Command:
    """The command of that name, loaded now."""
    module, summary = COMMANDS[name]
    command: Command = getattr(import_module(module), name.upper())
    return command._replace(name=name, summary=summary)


def main(argv: list[str] | None = None) -> NoReturn:
    """The entry point. Ends the process with the command's exit status; errors of ours are told without a traceback.

    With `argv` it raises SystemExit instead, for a caller that has more to do.
    """
    if argv is not None:
        sys.exit(_called(argv))
    _open_what_is_closed()
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    code = _called(sys.argv[1:])
    # Nothing waits for the interpreter to take itself apart, which takes longer than ending a small run.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # whoever read it has gone
            code = code or 141
    os._exit(code)


def _open_what_is_closed() -> None:
    """Service managers may start us without the standard descriptors; the next file opened would be taken for one of them."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one, as those before are open
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))


def _called(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) == 2 and words[0] == "help" and words[1] in COMMANDS:
            return _called([words[1], "--help"])
        print(
            INTRODUCTION + "".join(f"    {name:12}{short}\n" for name, (_, short) in COMMANDS.items()) + CLOSING, end=""
        )
        return 0 if words else USAGE_ERROR
    if words[0] in ("-V", "--version"):
        print(f"cantle {__version__}")
        return 0
    if words[0] not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(words[0], COMMANDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else " 'cantle --help' lists the commands."
        print(f"cantle: there is no command {words[0]!r}.{hint}", file=sys.stderr)
        return USAGE_ERROR
    try:
        command = command_named(words[0])
        asked = command.parser().parse_args(words[1:])
        if words[0] in CONDUCTING and any(name in os.environ for name in RANKS):
            from cantle.cli.launched import play

            return play(command, words, asked)
        return command.run(asked)
    except CantleError as problem:
        print(f"cantle: {printable(str(problem))}", file=sys.stderr)
        return problem.exit_code
    except KeyboardInterrupt:
        print("cantle: interrupted", file=sys.stderr)
        return 130
    except UnicodeEncodeError as problem:
        print(f"cantle: {problem.object[:_MOST_OF_A_NAME]!r} is not UTF-8, as a name must be here", file=sys.stderr)
        return 1
    except OSError as problem:
        if not isinstance(problem, BrokenPipeError):
            what = problem.filename or ("the current directory" if _is_nowhere() else "the output")
            print(f"cantle: {what}: {problem.strerror or problem}", file=sys.stderr)
            return 1
        # Whoever read us has gone: there is nobody to tell, and flushing at exit would only complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141


def _is_nowhere() -> bool:
    """Whether somebody has removed the directory in which we are."""
    try:
        os.getcwd()  # noqa: PTH109 (pathlib is not loaded yet)
    except OSError:
        return True
    return False


def _complete() -> None:
    """Answer the shell's question for completions; never returns when it was one."""
    import argcomplete

    parser = Parser(prog="cantle")
    subparsers = parser.add_subparsers()
    for name, (_, summary) in COMMANDS.items():
        command_named(name).arguments(subparsers.add_parser(name, help=summary))
    argcomplete.autocomplete(parser)
