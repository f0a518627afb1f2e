"""What is a command made of? Its arguments, what it does, and what its help says.

argparse, because it is loaded in a millisecond and the whole of a one-task run takes sixty.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from cantle.errors import RequestError

USAGE_ERROR = 64
"""Exit status of a command line that makes no sense: not 2, which says that tasks failed."""


class Command(NamedTuple):
    """`arguments` fills a parser; `run` does the work and returns the exit status."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    description: str = ""
    examples: str = ""

    def parser(self) -> Parser:
        """The parser of this command's own arguments."""
        parser = Parser(
            prog=f"cantle {self.name}",
            description=f"{self.summary}\n\n{self.description}".strip(),
            epilog=f"Examples:\n{self.examples}" if self.examples else None,
            formatter_class=_Help,
            allow_abbrev=False,
        )
        self.arguments(parser)
        return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, asked for directly: argparse would load shutil, and all compressors, even to parse."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
        except (OSError, ValueError):
            width = 80
        super().__init__(prog, width=min(width, 120) - 2)


_WORD = "\0"


def _bare(value: Any) -> Any:
    """The word without its mark."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return type(value)(text[1:]) if isinstance(text, str) and text.startswith(_WORD) else value


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest thing that would have been right.

    Options may stand between words of a list; argparse by itself gives up the list at the first one. After a `--` there are
    only words. What follows one of the options `take_options` is its value also when it looks like an option itself.
    """

    take_options: tuple[str, ...] = ()
    _words: Sequence[str] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments, parsed. Ends the process when they make no sense."""
        words = self._joined(sys.argv[1:] if args is None else list(args))
        at = words.index("--") if "--" in words else len(words)
        if taken := [word for word in words[:at] if word[:2] == "--" and word.endswith("=--")]:  # argparse loses that
            self.error(f"argument {taken[0][:-3]}: '--' is no value")
        # After the -- there are only words; so that argparse takes them for such, they begin with what no option does.
        self._words = words[:at]
        marked = [*words[:at], *(_WORD + word for word in words[at + 1 :])]
        # argparse cannot mix options and words where the first word chooses among further parsers.
        parse = super().parse_args if self._subparsers is not None else self.parse_intermixed_args
        parsed = parse(marked, namespace)
        for name, value in vars(parsed).items():
            setattr(parsed, name, [_bare(item) for item in value] if isinstance(value, list) else _bare(value))
        return parsed

    def _joined(self, words: list[str]) -> list[str]:
        """`--args=--mem=0` for `--args --mem=0`."""
        end = words.index("--") if "--" in words else len(words)
        for at in range(end - 2, -1, -1):
            if words[at] in self.take_options:
                words[at : at + 2] = [f"{words[at]}={words[at + 1]}"]
        return words

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong with the command line, last and in one line, and end with the status for that."""
        message = message.replace(_WORD, "").replace("\\x00", "")
        if message.startswith("the following arguments are required"):
            known = {"--", *self._options()}
            unknown = [word for word in self._words if word.startswith("--") and word.partition("=")[0] not in known]
            usage = self.format_usage()
            if unknown:  # it is why something is missing, or will be told next
                message = f"{_UNRECOGNIZED}{unknown[0]}"
            elif usage.count("\n") <= _MOST_USAGE_LINES:
                sys.stderr.write(usage)
        self.exit(USAGE_ERROR, f"{self.prog}: {self._in_words(message)}\n")

    def _in_words(self, message: str) -> str:
        """What argparse says, with the nearest thing that would have been right, or where to find it."""
        left = message.removeprefix(_UNRECOGNIZED)
        if left == message:
            choice = _INVALID_CHOICE.search(message)
            near = _near(choice[1], re.findall(r"'([^']*)'", choice[2])) if choice else ""
            return f"{message}; {near or f'see {self.prog} --help'}"
        wrong = next((word for word in left.split() if word.startswith("-")), "").partition("=")[0]
        if not wrong:
            return f"there is nothing to do with {left.split()[0]!r}; see {self.prog} --help"
        return f"there is no option {wrong}; {_near(wrong, self._options()) or f'see {self.prog} --help'}"

    def _options(self) -> list[str]:
        """Of this command, and of those among which its first word chooses."""
        parsers: list[argparse.ArgumentParser] = [self]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
        return [option for parser in parsers for action in parser._actions for option in action.option_strings]


_UNRECOGNIZED = "unrecognized arguments: "
_MOST_USAGE_LINES = 3
_INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")


def _near(wrong: str, known: Sequence[str]) -> str:
    """The question whether the nearest of these was meant; "" when none is near."""
    from difflib import get_close_matches

    bare = {word.lstrip("-"): word for word in known}  # dashes would make short ones alike
    near = get_close_matches(wrong.lstrip("-").replace("_", "-"), bare, n=1)
    return f"did you mean {bare[near[0]]}?" if near else ""


def at_least(least: float, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """A number that is not below `least`."""

    def parse(text: str) -> float:
        text = text.removeprefix(_WORD)
        try:
            number = kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
        if not number >= least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        if number == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} has no end; where there shall be no bound, say nothing")
        return number

    return parse


def between(least: float, most: float) -> Callable[[str], float]:
    """A number from `least` to `most`."""

    def parse(text: str) -> float:
        number = at_least(least, float)(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"{text} is above {most}")
        return number

    return parse


def named_amount(text: str) -> tuple[str, int]:
    """`NAME=N`."""
    name, equals, number = text.partition("=")
    if not (name and equals and number.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N")
    return name, int(number)


def amount(parse: str) -> Callable[[str], float]:
    """A duration or an amount of memory: `parse` names the function of `cantle.readers.quantities` that reads it."""

    def read(text: str) -> float:
        from cantle.readers import quantities

        try:
            number: float = getattr(quantities, parse)(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None
        return number

    return read


def wrong(message: str) -> RequestError:
    """An error for options that do not go together."""
    return RequestError(message)
