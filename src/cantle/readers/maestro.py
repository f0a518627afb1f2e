"""How does a Maestro study become tasks?

The file is read (`yaml_nodes`), its shape checked (`specification`, `steps`), its names expanded (`tokens`), the steps put in
order (`order`) and expanded into instances (`expansion`). What an instance runs is written at its launch (`scripts`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from cantle.errors import PluginError, RequestError, StudyError, UserError
from cantle.model.study import Commands, Study

from .ahead import parsed
from .base import ReadOptions
from .dependencies import Dependencies
from .expansion import Expander, Expansion
from .findings import Findings
from .launcher import PROGRAMS, brackets, flavour_named, flavour_of_machine, mpich
from .launching import NAMES, OWN, Launching, launcher_called
from .order import in_order
from .scripts import Scripts
from .specification import Specification, specification
from .steps import StepPlan, plans_of, warn_of_near_misses
from .tokens import Environment, Parameter, Parameters
from .yaml_nodes import parse

_SPEC = "study.yaml"
_KEPT = "maestro.json"
_SET_BY_THE_SYSTEM = ("OUTPUT_PATH", "WORKSPACE", "LAUNCHER", "WIDTH", "STREAMS")
_LOOKS_LIKE_A_STUDY = re.compile(rb"^(study|global\.parameters)\s*:", re.MULTILINE)


class _Origin(msgspec.Struct):
    """Where and how the study was first read: what `reopen` needs besides the file's text."""

    source: str
    specroot: str
    cwd: str
    options: ReadOptions
    parameters: list[Parameter] | None = None


class MaestroReader:
    """Reads the study specifications of Maestro 1.2, and mends what loses work there."""

    name = "maestro"

    def recognises(self, path: Path) -> bool:
        """Whether the name ends in .yaml or .yml, or a top-level `study:` stands near the beginning."""
        if path.suffix.lower() in (".yaml", ".yml"):
            return True
        try:
            with path.open("rb") as file:
                return bool(_LOOKS_LIKE_A_STUDY.search(file.read(1 << 16)))
        except OSError:
            return False

    def read(self, path: Path, options: ReadOptions) -> Study:
        """The study in this file. Raises StudyError with all problems, RequestError when it cannot be read."""
        try:
            text = path.read_bytes()
        except OSError as error:
            raise RequestError(f"{path}: cannot be read: {error.strerror}") from None
        if options.pargs and not options.pgen:
            raise RequestError("--pargs are arguments of a parameter generator: say which with --pgen")
        specroot = str(path.absolute().parent)
        return _study(text, _Origin(str(path), os.path.normpath(specroot), str(Path.cwd()), options), fresh=True)

    def reopen(self, folder: Path) -> Study:
        """The same study again, from what `keep` had put into this folder. No generator is run."""
        origin = msgspec.json.decode((folder / _KEPT).read_bytes(), type=_Origin)
        return _study((folder / _SPEC).read_bytes(), origin, fresh=False)


def _study(text: bytes, origin: _Origin, fresh: bool) -> Study:
    options = origin.options
    findings = Findings(origin.source)
    spec = _specification(text, findings)
    if options.slicing is not None:
        from .slicing import overruled

        spec.slicing = overruled(spec.slicing, options.slicing, findings)
    dependencies = Dependencies(origin.source, spec)
    environment, output = _environment(spec, origin, dependencies, findings)
    if fresh and options.pgen:
        try:
            origin.parameters = _generated(spec, environment, output, origin)
        except StudyError as error:
            findings.problems += error.problems
            spec.sound_parameters = False
    if origin.parameters is not None:
        spec.parameters = origin.parameters
    parameters = Parameters(spec.parameters)
    plans = plans_of(spec, environment, findings)
    expander = Expander(
        parameters, options.hashws, spec.batch.get("type") == "lsf", max(0, options.attempts - 1), findings
    )
    order = in_order(plans, findings)
    expansion = Expansion()
    if order and spec.sound_parameters:
        expansion = expander.expand(order)
    else:
        expander.check(plans)
    if fresh and not options.dry:
        dependencies.check(findings)
    warn_of_near_misses(plans, [*environment.names(), *parameters.by_key, *_SET_BY_THE_SYSTEM], findings)
    if spec.slicing is not None:
        from .slicing import check_steps

        check_steps(spec.slicing, expansion, findings)
    if spec.partitions or any(step.partition for step in expansion.steps):
        from .partitions import check_names, check_sizes

        check_names(spec.partitions, expansion, findings)
        check_sizes(spec.partitions, expansion, findings)
    launching = _launching(spec, plans, expansion, options, findings)
    findings.raise_if_wrong()
    batch = {"type": "local", **spec.batch}

    def work(directory: str) -> Commands:
        return Scripts(
            directory,
            expansion,
            parameters,
            batch,
            dependencies,
            launching,
            options.hashws,
            options.usetmp,
            origin.specroot,
        )

    return Study(
        name=spec.name,
        steps=expansion.steps,
        tasks=expansion.tasks,
        work=work,
        keep={_SPEC: text, _KEPT: msgspec.json.encode(origin)},
        digest=_digest(text, origin, dependencies.texts(environment, origin.cwd)),
        description=spec.description,
        source=origin.source,
        output_parent=output,
        limits=spec.limits,
        warnings=findings.warnings,
        slicing=spec.slicing,
        partitions=spec.partitions,
        engines=spec.engines,
        batch=batch,
    )


def _specification(text: bytes, findings: Findings) -> Specification:
    try:
        root = parsed(text, findings) or parse(text.decode("utf-8-sig"), findings)
    except UnicodeDecodeError as error:
        findings.wrong(text[: error.start].count(b"\n") + 1, "", "is not UTF-8 text", "save the file as UTF-8")
        root = None
    return Specification() if root is None else specification(root, findings)


def _environment(
    spec: Specification, origin: _Origin, dependencies: Dependencies, findings: Findings
) -> tuple[Environment, str]:
    """The names that do not vary, and the directory in which the study wants its runs ("" = not said)."""
    values = {name: text for name, text in spec.values.items() if name != "OUTPUT_PATH"}
    values["SPECROOT"] = origin.specroot
    without = Environment(values)
    without.circles()
    values.update(dependencies.texts(without, origin.cwd))
    environment = Environment(values)
    for names in environment.circles():
        line = spec.lines.get(names[0], 0)
        what = f"the name leads back to itself: {' -> '.join(names)}"
        findings.wrong(line, f"env.{names[0]}", what, "give one of them a text without the others")
    parent = spec.values.get("OUTPUT_PATH", "")
    if not parent:
        return environment, ""
    parent = environment.apply(parent)
    if "$(" in parent:
        what = f"still holds a token: {parent}"
        findings.wrong(spec.lines["OUTPUT_PATH"], "env.variables.OUTPUT_PATH", what, "use variables that are defined")
    return environment, os.path.normpath(os.path.join(origin.cwd, os.path.expanduser(parent)))  # noqa: PTH111, PTH118


def _generated(spec: Specification, environment: Environment, output: str, origin: _Origin) -> list[Parameter]:
    variables = {
        name: environment.apply(value) if isinstance(value, str) else value for name, value in spec.native.items()
    }
    from .generator import generated

    options = origin.options
    return generated(options.pgen, options.pargs, variables, output or origin.cwd, origin.specroot)


def _launching(
    spec: Specification, plans: list[StepPlan], expansion: Expansion, options: ReadOptions, findings: Findings
) -> Launching:
    """What `$(LAUNCHER)` becomes; a problem for each step that needs more than the machine has."""
    batch = {"type": "local", **spec.batch}
    said = str(batch.get("launcher") or "")
    named = options.launcher or said
    if named:
        flavour = flavour_named(named, os.geteuid() == 0)
        if flavour is None and named not in NAMES:
            try:
                launcher_called(named)
            except UserError as problem:
                known = f"known are {', '.join(NAMES)}, those of plug-ins, and module:name"
                what = str(problem) if isinstance(problem, PluginError) else f"{named!r} is not known"
                if options.launcher:
                    raise RequestError(f"--launcher: {what}; {known}") from None
                findings.wrong(spec.lines_of_batch["launcher"], "batch.launcher", what, known)
        if named == OWN:
            _without_parts(plans, findings)
        return Launching(flavour or mpich(), batch, named)
    flavour = flavour_named(str(batch.get("mpi") or ""), os.geteuid() == 0)
    launches = expansion.launches
    needing = [plan for plan in plans if launches.get(plan.name, 0) > 1]
    if flavour is not None or options.dry or not needing:
        return Launching(flavour or mpich(), batch)
    if options.elsewhere:
        return Launching(None, batch)
    flavour = flavour_of_machine()
    if flavour is not None:
        return Launching(flavour, batch)
    for plan in needing:
        what = (
            f"starts {launches[plan.name]} processes by $(LAUNCHER), but there is no {' and no '.join(PROGRAMS)} here"
        )
        mend = "install Open MPI or MPICH, load its module, or say --launcher; or ask for one process (procs: 1)"
        findings.wrong(plan.line, f"{plan.key}.run", what, mend)
    return Launching(mpich(), batch)


def _without_parts(plans: list[StepPlan], findings: Findings) -> None:
    """Cantle's own launcher runs the whole script in each rank, so that there are no parts."""
    for plan in plans:
        if brackets(plan.cmd) or brackets(plan.restart):
            what = (
                f"asks for a part by $(LAUNCHER)[...], but the launcher {OWN} runs the whole script once for each rank"
            )
            findings.wrong(plan.line, f"{plan.key}.run", what, "make a step of each part, or take another launcher")


def _digest(text: bytes, origin: _Origin, places: dict[str, str]) -> str:
    try:
        from _blake2 import blake2b  # what hashlib gives, without loading OpenSSL (9 ms)
    except ImportError:
        from hashlib import blake2b

    options = msgspec.structs.replace(origin.options, dry=False, elsewhere=False, pgen="", pargs=())
    content = msgspec.json.encode([origin.specroot, sorted(places.items()), options, origin.parameters])
    return blake2b(blake2b(text).digest() + content, digest_size=32).hexdigest()
