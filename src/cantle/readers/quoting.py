"""How is a place in a shell command quoted?

One pass over the text with a stack of what is open. It knows as much of the shell's grammar as decides how an expansion is
read: quotes, `$(…)`, `${…}`, arithmetic, backquotes, comments and here-documents. Each placeholder is replaced by an
expansion that yields the value as it is, whole, in that place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cantle.errors import RequestError

from .templates import NUMBER, Placeholders

_HEREDOC = re.compile(r"<<(-?)[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s'\"\\;&|<>()])+)")
# In "${x-'a'}" single quotes are text; in "${x#'a'}", a pattern, they quote.
_DEFAULT = re.compile(r"\$\{[#!]?(?:\w+|[@*?$!-])(?:\[[^\]]*\])?:?[-=+?]")
# The `)` after a pattern of `case` closes nothing.
_CASE = re.compile(r"(?:^|[;&|(\n]|\b(?:do|then|else)\b)[ \t]*case\s.+?\sin\b", re.DOTALL)
_ESAC = re.compile(r"\besac\b")
_WORD_STARTS = frozenset(" \t\n;&|()<>`")

# What may be open, and what closes it. In the soft ones, quotes are neither needed nor understood around an expansion.
_CLOSES = {
    "'": "'",
    "$'": "'",
    '"': '"',
    '\\"': '\\"',
    "`": "`",
    "$(": ")",
    "(": ")",
    "${": "}",
    "$((": "))",
    "((": "))",
}
_SOFT = frozenset(('"', '\\"', "$((", "<<"))
_NAMES = {"$(": "$(", "${": "${", "$((": "$((", "`": "backquote", "'": "single quote", '"': "double quote", "$'": "$'"}


class _Open(NamedTuple):
    """Something open: its kind, where it began, and what it does to text.

    `soft`: an expansion stays whole without quotes. `end`: where it ends, for here-documents. `apostrophes`: they quote.
    """

    kind: str
    start: int
    soft: bool
    end: int = -1
    apostrophes: bool = True


class ShellText:
    """A shell text with placeholders turned into variables.

    `result` is the text; `slots` tells which variable has to hold which slot's value.
    """

    def __init__(self, text: str, placeholders: Placeholders, dollar_quotes: bool) -> None:
        self.result = ""
        self.slots: dict[int, str] = {}
        self._text = text
        self._placeholders = placeholders
        self._dollar_quotes = dollar_quotes
        self._stack = [_Open("", 0, False)]
        self._documents: list[tuple[str, bool, bool]] = []
        self._scan()

    def _scan(self) -> None:
        text, stack = self._text, self._stack
        out: list[str] = []
        at = 0
        while at < len(text):
            top = stack[-1]
            if 0 <= top.end <= at:
                stack.pop()
                continue
            if hit := self._placeholders.match(text, at):
                out += (self._expansion(part) if isinstance(part, int) else part for part in hit[0])
                step = hit[1] - at
            else:
                step = self._token(at)
                out.append(text[at : at + step])
            at += step
        for left in [o for o in stack if o.kind in _NAMES][:1]:
            line, column = text.count("\n", 0, left.start) + 1, left.start - text.rfind("\n", 0, left.start)
            where = f"column {column}" if "\n" not in text else f"line {line}, column {column}"
            raise RequestError(
                f"the command leaves a {_NAMES[left.kind]} open that begins at {where}: {text}\n"
                "    Close it, or give the command as separate words, which no shell reads."
            )
        self.result = "".join(out)

    def _expansion(self, slot: int) -> str:
        """What to write for a slot where we are."""
        name = self.slots.setdefault(slot, "cantle_number" if slot == NUMBER else f"cantle_value_{slot + 1}")
        top = self._stack[-1]
        if top.soft:
            return f"${{{name}}}"
        if top.kind == "'":
            return f"'\"${{{name}}}\"'"
        if top.kind == "$'":
            return f"'\"${{{name}}}\"$'"
        return f'"${{{name}}}"'

    def _token(self, at: int) -> int:
        """Open or close what begins or ends here; how many characters that takes."""
        text, stack = self._text, self._stack
        top = stack[-1]
        if top.kind == "<<'":
            return top.end - at
        close = _CLOSES.get(top.kind, "")
        if close and text.startswith(close, at) and not (close == ")" and self._in_case(top, at)):
            stack.pop()
            return len(close)
        char = text[at]
        if top.kind == "'":
            return 1
        if char == "\\":
            # within `…` within "…" this is a quote of the inner command
            if text.startswith('\\"', at) and top.kind == "`" and any(o.kind == '"' for o in stack):
                return self._open('\\"', at)
            return 2
        if top.kind == "$'":
            return 1
        if char == "`":
            return self._open("`", at)
        if char == "$":
            return self._dollar(at, top)
        if char == '"' and top.kind not in ("<<", '"'):
            return self._open('"', at)
        if char == "'" and top.apostrophes:
            return self._open("'", at)
        if char == "(" and top.soft and top.kind in ("$((", "("):
            stack.append(_Open("(", at, True, apostrophes=False))
        return 1 if top.soft or top.kind == "${" else self._operator(at, char, top)

    def _dollar(self, at: int, top: _Open) -> int:
        text = self._text
        if text.startswith("$((", at):
            return self._open("$((", at)
        if text.startswith("$(", at):
            return self._open("$(", at)
        if text.startswith("${", at):
            quoted = top.soft
            self._stack.append(_Open("${", at, quoted, apostrophes=not (quoted and _DEFAULT.match(text, at))))
            return 2
        if text.startswith("$'", at) and self._dollar_quotes and not top.soft:
            return self._open("$'", at)
        return 1

    def _operator(self, at: int, char: str, top: _Open) -> int:
        """Parentheses, comments, here-documents: what only unquoted text has."""
        text = self._text
        if char == "(":
            starts = at == 0 or text[at - 1] in _WORD_STARTS
            return self._open("((" if starts and text.startswith("((", at) else "(", at)
        if char == "#" and (at == 0 or text[at - 1] in _WORD_STARTS) and top.kind not in ("((",):
            end = text.find("\n", at)
            return (end if end >= 0 else len(text)) - at
        if char == "<" and text.startswith("<<<", at):
            return 3
        if char == "<" and top.kind != "((" and (found := _HEREDOC.match(text, at)):
            mark = re.sub(r"['\"\\]", "", found[2])
            self._documents.append((mark, mark != found[2], bool(found[1])))
            return len(found[0])
        if char == "\n" and self._documents:
            return self._here_documents(at + 1) - at
        return 1

    def _here_documents(self, at: int) -> int:
        """Open the bodies of the here-documents announced on the line that ends before `at`; where reading goes on."""
        text = self._text
        bodies = []
        start = at
        for mark, literal, tabs in self._documents:
            end = start
            while end < len(text):
                stop = text.find("\n", end)
                line = text[end : stop if stop >= 0 else len(text)]
                if (line.lstrip("\t") if tabs else line) == mark:
                    break
                end = stop + 1 if stop >= 0 else len(text)
            if literal and any(self._placeholders.match(text, i) for i in range(start, end)):
                raise RequestError(
                    f"a placeholder stands in a here-document whose mark {mark} is quoted, so that nothing in it can change\n"
                    f"    Write <<{mark} without quotes, or hand the value over as an argument."
                )
            bodies.append(_Open("<<'" if literal else "<<", start, True, end, apostrophes=False))
            stop = text.find("\n", end)
            start = stop + 1 if stop >= 0 else len(text)
        self._documents.clear()
        # the innermost is the first to be read
        self._stack += reversed(bodies)
        return at

    def _in_case(self, top: _Open, at: int) -> bool:
        """Whether a `case` that began within this parenthesis is still open."""
        inside = self._text[top.start + 1 : at]
        return len(_CASE.findall(inside)) > len(_ESAC.findall(inside))

    def _open(self, kind: str, at: int) -> int:
        self._stack.append(_Open(kind, at, kind in _SOFT, apostrophes=kind not in _SOFT))
        return len(kind)
