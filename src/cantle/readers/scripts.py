"""What does an instance of a study run? Its script, written at the moment of its launch."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import Any

from cantle.errors import MachineError
from cantle.model.resources import Node, Place
from cantle.model.study import Command, Stage, Task

from . import batch_scripts
from .dependencies import Dependencies
from .expansion import Expansion
from .instance_names import safe
from .launching import Launching
from .steps import StepPlan
from .tokens import Parameters


class Scripts:
    """The work half of a Maestro study, for a run in one directory."""

    def __init__(
        self,
        directory: str,
        expansion: Expansion,
        parameters: Parameters,
        batch: Mapping[str, Any],
        dependencies: Dependencies,
        launching: Launching,
        hashws: bool,
        usetmp: bool,
        specroot: str = "",
    ) -> None:
        self._directory = directory
        self._expansion = expansion
        self._parameters = parameters
        self._batch = batch
        self._dependencies = dependencies
        self._launching = launching
        self._hashws = hashws
        self._usetmp = usetmp
        self._specroot = specroot
        self._tmp = ""
        self._orphans = False
        self._shell = _words(batch.get("shell", "/bin/bash"))

    def prepare(self, directory: str) -> None:
        """Fetch what the study depends on and check that it is there; call once before the first launch of a run.

        `directory` is the run's. A repository that has been cloned already is left as it is. Raises StudyError.
        """
        self._dependencies.prepare(directory)

    def launch_lost_a_node(self) -> None:
        """A launch of this run had ranks on a node that has gone: later ones must not wait for what is left of it."""
        self._orphans = True

    def command(
        self,
        task: int,
        attempt: int,  # noqa: ARG002 - every attempt runs the same
        restart: bool,
        places: tuple[Place, ...],
        nodes: tuple[Node, ...],
    ) -> Command:
        """The script of this task, or with `restart` its restart script where it has one."""
        expansion = self._expansion
        instance = expansion.tasks[task]
        plan = expansion.plan_of[instance.step]
        step = expansion.steps[instance.step]
        width = len(places) or step.needs.nodes
        settings = expansion.settings[instance.step].at(width)
        combination = expansion.combination[task]
        restarting = restart and bool(plan.restart)
        fill = self._filler(plan, combination, instance, width, step.streams)
        name = instance.workspace.rpartition("/")[2] if self._hashws and combination >= 0 else instance.name
        description = plan.description
        if combination >= 0:
            description = self._parameters.apply(description, combination)
        head = batch_scripts.head(self._batch, settings, name.replace(" ", "_"), description)
        env = {key: value if value is None else fill(value) for key, value in plan.env.items()}
        if step.widths or step.needs.nodes > 1:
            env["CANTLE_WIDTH"] = str(width)
            if nodes:  # also at width 1, so that a script need not tell widths apart
                env |= {"CANTLE_NODES": str(len(nodes)), "CANTLE_NODELIST": ",".join(node.name for node in nodes)}
        stem = safe(name)
        own = f"{self._directory}/{instance.workspace}/{stem}.launch"
        text = fill(plan.restart if restarting else plan.cmd)
        launched = self._launching.put_into(text, settings, places, nodes, own, env, self._orphans)
        ending = (".restart" if restarting else "") + batch_scripts.suffix(self._batch["type"])
        return Command(
            script=f"{head}\n\n{launched.script}\n",
            script_path=f"{self._script_folder(instance.workspace)}/{stem}{ending}",
            shell=self._shell,
            cwd=instance.workspace,
            env={**launched.env, **env},
            files=launched.files,
            ranks=launched.ranks,
            cores_each=step.cores_per_rank,
            launches=launched.launches,
            launches_here=launched.launches and launched.launches_here,
            output_stem=f"{instance.workspace}/{stem}",
            stage=self._stage(plan, fill, instance.workspace) if "stage" in plan.settings or plan.local else None,
        )

    def _stage(self, plan: StepPlan, fill: Callable[[str], str], workspace: str) -> Stage:
        """What lies in the run's directory keeps its place; other files come into the workspace."""
        files = []
        for text in plan.stage_in:
            path = os.path.join(self._specroot, fill(text))  # noqa: PTH118
            inside = path.startswith(f"{self._directory}/")
            folder = os.path.dirname(os.path.relpath(path, self._directory)) if inside else workspace  # noqa: PTH120
            files.append((path, f"{folder}/"))
        return Stage(tuple(files), tuple(map(fill, plan.stage_out)), tuple(map(fill, plan.local)))

    def _filler(
        self, plan: StepPlan, combination: int, instance: Task, width: int, streams: int
    ) -> Callable[[str], str]:
        """A function that puts into a text all that belongs to this instance."""

        def fill(text: str) -> str:
            if "$(" not in text:
                return text
            text = text.replace("$(OUTPUT_PATH)", self._directory)
            if combination >= 0 and plan.own:
                text = self._parameters.apply(text, combination)
            for name in plan.refers_to:
                token = f"$({name}.workspace)"
                if token in text:
                    text = text.replace(token, f"{self._directory}/{self._workspace_of(plan, name, combination)}")
                token = f"$({name}.workspaces)"
                if token in text:
                    text = text.replace(token, self._workspaces_of(plan, name, combination, instance))
            text = text.replace("$(WIDTH)", str(width))
            if streams:
                text = text.replace("$(STREAMS)", str(streams))
            own = f"{self._directory}/{instance.workspace}"
            return text.replace(f"$({plan.name}.workspace)", own).replace("$(WORKSPACE)", own)

        return fill

    def _workspace_of(self, plan: StepPlan, name: str, combination: int) -> str:
        if name in plan.funnels:
            return safe(name)
        instances = self._expansion.instances[name]
        return self._expansion.tasks[instances[0 if len(instances) == 1 else combination]].workspace

    def _workspaces_of(self, plan: StepPlan, name: str, combination: int, instance: Task) -> str:
        """The workspaces of all instances of a step that this one awaits, as words for a shell."""
        from shlex import quote

        expansion = self._expansion
        awaited = (expansion.tasks[number] for number in sorted({*instance.parents, *instance.after}))
        found = [task.workspace for task in awaited if expansion.plan_of[task.step].name == name]
        found = found or [self._workspace_of(plan, name, combination)]
        return " ".join(quote(f"{self._directory}/{workspace}") for workspace in found)

    def _script_folder(self, workspace: str) -> str:
        if not self._usetmp:
            return workspace
        if not self._tmp:
            self._tmp = _own_folder(self._directory)
        return self._tmp


def _own_folder(directory: str) -> str:
    """A temporary folder that is ours alone, and the same one whenever a run in this directory is resumed."""
    import tempfile
    from zlib import crc32

    folder = f"{tempfile.gettempdir()}/cantle-{os.getuid()}-{crc32(directory.encode(errors='surrogateescape')):08x}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        found = os.lstat(folder)
    except OSError as error:
        raise MachineError(f"--usetmp: cannot make {folder}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise MachineError(f"--usetmp: {folder} belongs to somebody else; remove it, or set TMPDIR")
    return folder


def _words(shell: str) -> tuple[str, ...]:
    """The shell and its arguments; most have none."""
    if shell.isascii() and shell.replace("/", "").replace("-", "").isalnum():
        return (shell,)
    import shlex

    return tuple(shlex.split(shell))
