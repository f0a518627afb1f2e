"""What does Maestro 1.2.1 itself make of a specification? Asked in this process: no conductor, nothing run."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import warnings
from pathlib import Path
from typing import NamedTuple

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from maestrowf.datastructures.core import Study
    from maestrowf.datastructures.environment import Variable
    from maestrowf.interfaces import ScriptAdapterFactory
    from maestrowf.interfaces.script import FluxFactory
    from maestrowf.maestro import load_parameter_generator
    from maestrowf.specification import YAMLSpecification

logging.getLogger("maestrowf").setLevel(logging.CRITICAL + 1)
logging.getLogger().setLevel(logging.CRITICAL + 1)


class Instance(NamedTuple):
    """One instance: where it works, what it awaits, and its scripts by their file names."""

    workspace: str
    parents: frozenset[str]
    scripts: dict[str, str]
    params: dict[str, str]


def instances(spec_path: Path, out: Path, pgen: Path | None = None, pargs: dict[str, str] | None = None, hashws=False):
    """All instances by name. Workspaces are relative to `out`. Raises whatever Maestro raises."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return _instances(spec_path, out, pgen, pargs, hashws)


def _instances(spec_path, out, pgen, pargs, hashws):
    out.mkdir(parents=True, exist_ok=True)
    spec = YAMLSpecification.load_specification(str(spec_path))
    environment = spec.get_study_environment()
    environment.remove("OUTPUT_PATH")
    environment.add(Variable("OUTPUT_PATH", str(out)))
    root = Variable("SPECROOT", os.path.abspath(os.path.split(spec_path)[0]))
    environment.add(root)
    if pgen:
        kwargs = {**(pargs or {}), "OUTPUT_PATH": str(out), "SPECROOT": root}
        parameters = load_parameter_generator(str(pgen), environment, kwargs)
    else:
        parameters = spec.get_parameters()
    steps = spec.get_study_steps()
    study = Study(
        spec.name, spec.description, studyenv=environment, parameters=parameters, steps=steps, out_path=str(out)
    )
    study.configure_study(hash_ws=hashws, dry_run=True)
    environment._is_set_up = True  # acquiring would want the network
    _, graph = study.stage()
    batch = dict(spec.batch or {"type": "local"})
    batch.setdefault("type", "local")
    if batch["type"] == "flux":
        flux = FluxFactory.get_interface(FluxFactory.latest)
        flux.get_flux_version = classmethod(lambda cls: "0.49.0")
        flux.get_broker_queues = classmethod(lambda cls: ["short"])
    adapter = ScriptAdapterFactory.get_adapter(batch["type"])(**copy.deepcopy(batch))
    found = {}
    for name, record in graph.values.items():
        if name == "_source":
            continue
        workspace = Path(record.workspace.value)
        workspace.mkdir(parents=True, exist_ok=True)
        _, script, restart = adapter.write_script(str(workspace), record.step)
        paths = [Path(path) for path in (script, restart) if path]
        found[name] = Instance(
            str(workspace.relative_to(out)),
            frozenset(graph._dependencies[name]) - {"_source"},
            {path.name: path.read_text() for path in paths},
            {key: str(value) for key, value in record.params.items()},
        )
    return found
