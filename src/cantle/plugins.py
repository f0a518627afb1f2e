"""Which object does a name stand for? Readers, engines, allocations, packers, batch systems, ours and other people's.

A name is one of ours, one that an installed package declares as an entry point (group `cantle.readers` and so on), or
`module:attribute` for something that lies at hand: on `PYTHONPATH`, or in the folder where the user stands; or
`FILE.py:attribute` for what stands in a file. Nothing is imported before its name is used, and entry points are searched only
for names that are not ours: that search costs more than a small run.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Literal

from cantle.errors import CantleError, PluginError, RequestError, said_by

Group = Literal[
    "readers",
    "engines",
    "hosted_engines",
    "allocations",
    "packers",
    "launchers",
    "batch_systems",
    "providers",
    "scaling_functions",
]

OURS: dict[Group, dict[str, str]] = {
    "readers": {
        "maestro": "cantle.readers.maestro:MaestroReader",
        "wfformat": "cantle.readers.wfformat:WfFormatReader",
        "map": "cantle.readers.map:MapReader",
    },
    "engines": {
        "process": "cantle.engines.process:ProcessEngine",
        "mpi": "cantle.engines.process:ProcessEngine",  # a launch across nodes is one process there, and what it spreads
    },
    "hosted_engines": {
        "dask": "cantle.engines.hosted.dask:Dask",
        "ray": "cantle.engines.hosted.ray:Ray",
        "torchrun": "cantle.engines.hosted.torchrun:Torchrun",
    },
    "allocations": {"local": "cantle.allocations.local:LocalAllocation"},
    "packers": {
        "best-fit": "cantle.core.packing:best_fit",
        "first-fit": "cantle.core.packing:first_fit",
        "spread": "cantle.core.packing:spread",
    },
    "launchers": {
        "srun": "cantle.engines.launchers.slurm:Srun",
        "openmpi": "cantle.engines.launchers.openmpi:OpenMpi",
        "mpich": "cantle.engines.launchers.mpich:Mpich",
        "flux": "cantle.engines.launchers.flux:Flux",
        "jsrun": "cantle.engines.launchers.jsrun:Jsrun",
        "cantle": "cantle.engines.launchers.own:Own",
    },
    "batch_systems": {
        "slurm": "cantle.allocations.submission.slurm:Slurm",
        "pbs": "cantle.allocations.submission.pbs:Pbs",
        "lsf": "cantle.allocations.submission.lsf:Lsf",
        "flux": "cantle.allocations.submission.flux:Flux",
    },
    "providers": {
        "local": "cantle.allocations.providers.local:LocalNodes",
        "batch": "cantle.allocations.providers.batch:BatchProvider",
        "ssh": "cantle.allocations.providers.hosts:HostPool",
        "own": "cantle.allocations.providers.custom:CustomProvider",
    },
    "scaling_functions": {},
}


def find(group: Group, name: str) -> Any:
    """The object of that name. Raises RequestError when nobody knows the name, PluginError when it cannot be imported."""
    target = OURS[group].get(name)
    if target is None and ":" in name:
        target = name
    if target is None:
        theirs = _entry_points(group)
        target = theirs.get(name)
        if target is None:
            known = ", ".join(sorted({*OURS[group], *theirs}))
            kind = group.removesuffix("s").replace("_", " ")
            raise RequestError(f"no {kind} is called {name!r}; there are {known}, or module:name, FILE.py:name")
    module, _, attribute = target.partition(":")
    try:
        found: Any = _imported(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as problem:
        raise PluginError(f"{group.removesuffix('s')} {name}: {said_by(problem)}") from problem
    return found


_DO = {"readers": "read", "launchers": "prefix", "batch_systems": "submit", "hosted_engines": "head"}
"""What those of a group can do at least."""


def made(group: Group, name: str) -> Any:
    """A new object of the class of that name. Raises as `find`; PluginError as well when there can be none of its kind."""
    kind = group.removesuffix("s").replace("_", " ")
    try:
        new = find(group, name)()
    except CantleError:
        raise
    except Exception as problem:
        raise PluginError(f"{kind} {name}: {said_by(problem)}") from problem
    method = _DO.get(group)
    if method is not None and not callable(getattr(new, method, None)):
        raise PluginError(f"{kind} {name}: it has no method `{method}`, as a {kind} must have")
    return new


def declared_as(group: Group, name: str) -> str:
    """What an installed package declares under this name, as `module:attribute`; "" when none does."""
    return _entry_points(group).get(name, "")


def _imported(module: str) -> Any:
    if module.endswith(".py"):
        return _of_file(Path(module).absolute())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        here = str(Path.cwd())
        if missing.name != module.partition(".")[0] or here in sys.path:
            raise
        sys.path.append(here)  # last, so that nothing that lies there hides an installed package
        importlib.invalidate_caches()
        return importlib.import_module(module)


def _of_file(path: Path) -> Any:
    """The module in a file. Once in a process, however often it is asked for. Raises what importing it raises."""
    from importlib.util import module_from_spec, spec_from_file_location

    known = sys.modules.get(path.stem)
    name = path.stem if known is None or getattr(known, "__file__", None) == str(path) else f"{path.stem} ({path})"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # as its name ends in .py
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def reader_for(path: Path, name: str = "") -> Any:
    """The reader for a file: the one named, or the one that recognises it.

    Raises RequestError when the file is not there or nobody recognises it.
    """
    if name:
        return made("readers", name)
    if not path.exists():
        raise RequestError(f"there is no file {path}")
    if path.is_dir():
        raise RequestError(f"{path} is a directory; name the study's file")
    if not path.is_file():
        raise RequestError(f"{path} is no regular file, and a study is read more than once: put it into a file")
    tried = []
    for candidate in OURS["readers"]:
        tried.append(candidate)
        reader = made("readers", candidate)
        if reader.recognises(path):
            return reader
    for candidate in _entry_points("readers"):
        if candidate not in tried:
            tried.append(candidate)
            reader = made("readers", candidate)
            if reader.recognises(path):
                return reader
    raise RequestError(
        f"{path} is no study that I know how to read (tried {', '.join(tried)}); "
        "a Maestro study is a .yaml file with the keys `description` and `study`, a WfFormat instance a .json file"
    )


def _entry_points(group: Group) -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=f"cantle.{group}")}
