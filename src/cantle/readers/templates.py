"""Where does a value go in a command, and how must it be quoted there?

Placeholders are `{}` (the value), `{NAME}` (a field of the table) and `{#}` (the number of the task, from 1), and nothing else:
any other brace stays as it is, so that `awk '{print $1}'`, `${HOME}` and `find -exec … {x}` survive. A brace right after `$`
never begins a placeholder. Where a placeholder itself is wanted as text, its braces are doubled: `{{}}` gives `{}`.

Three kinds of command come out, all as words for `exec`:

- An argument list stays one; values are put into its words; no shell is involved.
- Text that needs no shell (plain words and quotes) is cut into words here and started directly, as make does.
- Other text goes to the shell unchanged but for its placeholders. A value is never written into the shell's source: it is
  handed over as an argument, kept in a variable, and the placeholder becomes `"${variable}"`, with the quotes that
  its place needs. So there is nothing to escape and nothing that a value could break out of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from cantle.errors import RequestError

NUMBER = -1
"""The slot of `{#}`; slots from 0 up are fields."""

Word: TypeAlias = tuple[str | int, ...]
"""One argument: literal text and slots, in order."""

_PLAIN = frozenset("_@%+=:,./-")
# Names that only the shell understands, or understands differently from the program of that name.
_SHELL_NAMES = """
. : [[ alias bg bind break builtin caller case cd command compgen complete continue coproc declare dirs disown do done elif
else enable esac eval exec exit export fc fg fi for function getopts hash help history if in jobs let local logout mapfile
popd pushd read readarray readonly return select set shift shopt source suspend then time times trap type typeset ulimit
umask unalias unset until wait while
"""


_LIKE_A_PLACEHOLDER = re.compile(r"(?<![${])\{[A-Za-z_][A-Za-z0-9_]*\}(?!\})")


class Placeholders:
    """The names that a template may use: slot by name."""

    def __init__(self, names: Mapping[str, int]) -> None:
        self.slots = {**names, "#": NUMBER}
        name = "|".join(re.escape(name) for name in sorted(self.slots, key=len, reverse=True))
        # {{{x}}} is a value in braces, {{x}} the text {x}, {x} the value
        self._at = re.compile(rf"(?<!\$)(?:\{{(\{{(?:{name})\}})\}}|\{{({name})\}})")
        self._braced = re.compile(rf"(?<!\$)\{{\{{(\{{(?:{name})\}})\}}\}}")

    def match(self, text: str, at: int) -> tuple[Word, int] | None:
        """What stands at this place: its parts and where it ends. None: no placeholder."""
        if text[at] != "{":
            return None
        if found := self._braced.match(text, at):
            return ("{", self.slots[found[1][1:-1]], "}"), found.end()
        if found := self._at.match(text, at):
            return ((found[1],) if found[1] else (self.slots[found[2]],)), found.end()
        return None

    def word(self, text: str) -> Word:
        """An argument of a list: values put in, all else verbatim."""
        parts: list[str | int] = []
        done = 0
        at = text.find("{")
        while at >= 0:
            if found := self.match(text, at):
                parts += (text[done:at], *found[0])
                done = at = found[1]
                at = text.find("{", at)
            else:
                at = text.find("{", at + 1)
        return tidy((*parts, text[done:]))


def tidy(parts: Sequence[str | int]) -> Word:
    """The same word with neighbouring texts joined and empty ones left out."""
    joined: list[str | int] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def mentions(template: str | Sequence[str], names: Mapping[str, int]) -> bool:
    """Whether a placeholder, or one written as text, stands anywhere in the command."""
    placeholders = Placeholders(names)
    texts = [template] if isinstance(template, str) else template
    return any(placeholders.word(text) != tidy((text,)) for text in texts)


def strangers_in(texts: Iterable[str], names: Mapping[str, int]) -> list[str]:
    """What looks like a placeholder in these texts, and stands for no name: `{mas}`, say."""
    found = {match[0]: None for text in texts for match in _LIKE_A_PLACEHOLDER.finditer(text)}
    return [word for word in found if word[1:-1] not in names]


def words(template: str | Sequence[str], names: Mapping[str, int], shell: str) -> list[Word]:
    """The command's words. `names` maps a placeholder's name to its slot; `shell` runs text that needs one.

    Raises RequestError when a quote is left open or a placeholder stands where no value can be put.
    """
    placeholders = Placeholders(names)
    if not isinstance(template, str):
        return [placeholders.word(argument) for argument in template]
    return _plain_words(template, placeholders) or _shell_words(template, placeholders, shell)


def _plain_words(text: str, placeholders: Placeholders) -> list[Word] | None:
    """The words of a text that means the same without a shell; None for any other."""
    found: list[Word] = []
    word: list[str | int] | None = None
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        if hit := placeholders.match(text, at):
            word = word or []
            word += hit[0]
            at = hit[1]
            continue
        at += 1
        if char == quote:
            quote = ""
        elif quote:
            if quote == '"' and char in "$`\\":
                return None
            word = word or []
            word.append(char)
        elif char in "'\"":
            quote = char
            word = word or []
        elif char in " \t":
            if word is not None:
                found.append(tidy(word))
            word = None
        elif char.isalnum() or char in _PLAIN:
            word = word or []
            word.append(char)
        else:
            return None
    if quote:
        return None
    if word is not None:
        found.append(tidy(word))
    first = found[0][0] if found and found[0] else ""
    if isinstance(first, str) and (not first or "=" in first or first in _SHELL_NAMES.split()):
        return None
    return found


def _shell_words(text: str, placeholders: Placeholders, shell: str) -> list[Word]:
    """`shell -c`, the text with variables for its placeholders, and the values as arguments."""
    from .quoting import ShellText

    source = ShellText(text, placeholders, _knows_dollar_quotes(shell))
    if not source.slots:
        return [(shell,), ("-c",), (source.result,)]
    # `set --` so that the text sees no arguments, just as it would without us
    kept = " ".join(f"{name}=${{{n}}}" for n, name in enumerate(source.slots.values(), 1))
    prelude = f"{kept}; set --; "
    return [(shell,), ("-c",), (prelude + source.result,), (shell,), *((slot,) for slot in source.slots)]


@lru_cache
def _knows_dollar_quotes(shell: str) -> bool:
    """Whether $'...' is a quote of its own in this shell: in all but dash."""
    import shutil
    from pathlib import Path

    return Path(shutil.which(shell) or shell).resolve().name != "dash"


def check_text(text: str, what: str) -> str:
    """The text itself. Raises RequestError when it holds what no program can be given: NUL, or bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{what} is not UTF-8: {text!r}") from None
    if "\0" in text:
        raise RequestError(f"{what} holds a NUL, which no program can be given as an argument: {text!r}")
    return text
