"""Which command was meant? The command line's front door; the commands themselves are loaded when they are called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from cantle import __version__
from cantle.errors import CantleError

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
    "validate": ("cantle.cli.foreseeing", "Check studies and report every problem."),
    "simulate": ("cantle.cli.foreseeing", "Run a study in simulated time on machines that need not exist."),
}


class _Commands(click.Group):
    """A group that knows its commands by name and loads one only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = COMMANDS.get(cmd_name)
        if known is None:
            return None
        command: click.Command = getattr(import_module(known[0]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Shell completion: eval "$(_CANTLE_COMPLETE=bash_source cantle)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, "--version", "-V", message="cantle %(version)s")
def cantle() -> None:
    """Run a whole workflow inside the machines that you already hold.

    \b
        cantle run study.yaml             run a Maestro study here, in parallel
        cantle map 'sim --seed {}' --range 1-1000
        cantle status DIR                 look at a run, from any shell
        cantle resume DIR                 go on where it ended
    """


def main(argv: list[str] | None = None) -> Any:
    """The entry point. Ends the process with the command's exit status; errors of ours are told without a traceback."""
    try:
        code = cantle.main(args=argv, prog_name="cantle", standalone_mode=False)
    except click.exceptions.Exit as wanted:
        code = wanted.exit_code
    except click.ClickException as problem:
        problem.show()
        code = problem.exit_code
    except CantleError as problem:
        print(f"cantle: {problem}", file=sys.stderr)
        code = problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("cantle: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        # Whoever read us has gone; there is nobody to tell, and flushing at exit would only complain.
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        code = 141
    sys.exit(code if isinstance(code, int) else 0)
