"""Which files beside it does a study need? Those that it names by a relative path, or below its own folder by `$(SPECROOT)`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .findings import Findings
from .yaml_nodes import Item, parse

_BESIDE = re.compile(r"\$\(SPECROOT\)/([\w./+@%=-]+)", re.ASCII)
_TOKEN = re.compile(r"\$\((\w+)\)", re.ASCII)


def named_files(study: Path) -> list[Path]:
    """The files and folders that are there, each once; the study itself is not among them.

    What stands under `env.dependencies.paths` counts from the working directory, as it does when the study is run. What
    cannot be read is nothing here: whoever runs the study tells what is wrong with it.
    """
    try:
        text = study.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return []
    folder = study.absolute().parent
    found = [folder / name.rstrip(".") for name in _BESIDE.findall(text)]
    if study.suffix.lower() in (".yaml", ".yml"):
        found += _dependencies(text, folder)
    there = (Path(os.path.normpath(path)) for path in found)
    return list(dict.fromkeys(path for path in there if path.exists() and path != folder))


def _dependencies(text: str, folder: Path) -> list[Path]:
    root = parse(text, Findings(""))
    env = _child(root, "env")
    paths = _child(_child(env, "dependencies"), "paths")
    variables = {"SPECROOT": str(folder)}
    for kind in ("variables", "labels"):
        block = _child(env, kind)
        variables |= {name: item.text for name, item in block.mapping.items()} if block else {}
    found = []
    for entry in paths.value if paths is not None and isinstance(paths.value, list) else ():
        path = _child(entry, "path")
        if path is not None and isinstance(path.value, str):
            expanded = _TOKEN.sub(lambda match: variables.get(match[1], match[0]), path.value)
            if not Path(expanded).is_absolute() or Path(expanded).is_relative_to(folder):
                found.append(Path.cwd() / expanded)
    return found


def _child(item: Item | None, key: str) -> Item | None:
    return item.mapping.get(key) if item is not None else None
