"""How is told what is wrong with a pilot's options, when a program gave them as arguments?

A program's pilot is `cantle up` with words made from the arguments of `cantle.open`. What that complains of goes by the names
of its options; here they get the names that the program knows.
"""

from __future__ import annotations

import re

_NAMES = {
    "--nodes": "nodes=",
    "--cores": "cores=",
    "--kinds": "kinds=",
    "--scaling": "scaling=",
    "--pilot": "pilot=",
    "-j": "hosts=",
    "-o": "directory=",
}
_OPTION = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, _NAMES))})(?![\w-])(?: (?=[N'\"\d]|payoff|fixed))?")
_OTHERS = re.compile(r"(?<![\w\"'-])(--[a-z][a-z-]*)(?![\w=])")
_SPEAKERS = ("cantle up: ", "cantle: ")


def in_arguments(said: str, words: list[str]) -> str:
    """What `cantle up` said of these words, in terms of the arguments that they were made from."""
    said = said[said.find(_SPEAKERS[0]) :] if said.startswith("usage:") else said
    for speaker in _SPEAKERS:
        said = said.removeprefix(speaker)
    if said.startswith("there is no option"):  # it is one of `options=`, which are given as they are
        return said.replace("see cantle up --help", "see `cantle up --help`")
    if "is no group of nodes" in said and said.startswith("'"):
        said = f"nodes={said}"
    said = re.sub(r"(?m)^--kinds:\d+: kinds\.slurm\b", "slurm=: slurm", said) if _only_slurm(words) else said
    said = re.sub(r"(?m)^--kinds:\d+: kinds\.", "kinds=: ", said)
    said = re.sub(r"(?m)^--kinds(?::\d+)?: ", "kinds=: ", said)
    said = re.sub(r"scaling_function (\S+):", r"scaling='\1':", said)
    said = re.sub(r"scaling policy (\S+):", r"scaling='\1':", said)
    said = re.sub(r"--scaling ([^\s:,;]+(?::\S*[^\s:,;])?)", r"scaling='\1'", said)
    said = _OPTION.sub(lambda found: _NAMES[found[1]], said)
    given = {word.partition("=")[0] for word in words}
    return _OTHERS.sub(lambda found: found[1] if found[1] in given else f'options=["{found[1]}"]', said)


def _only_slurm(words: list[str]) -> bool:
    """Whether the kinds were made from `slurm=` alone."""
    return any(word.startswith('{"slurm": {"provider": "slurm"') and word.count('"provider"') == 1 for word in words)
