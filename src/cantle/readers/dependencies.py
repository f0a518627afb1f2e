"""Where are the files and repositories that a study depends on?

Paths may hold tokens and are relative to the directory in which the study was read. A path must be there when the run
starts; a repository is cloned then. A clone of the same repository that is there already is used as it stands, so that a
resumed run finds what it had; anything else in its place is a problem.
"""

from __future__ import annotations

import os

from .findings import Findings
from .specification import GitEntry, PathEntry, Specification
from .tokens import Environment

_OUTPUT = "$(OUTPUT_PATH)"


class Dependencies:
    """All dependencies of a study, their tokens replaced."""

    def __init__(self, file: str, spec: Specification) -> None:
        self.file = file
        self._paths = spec.paths
        self._gits = spec.gits
        self._places: dict[str, str] = {}
        self._urls: dict[str, str] = {}

    def texts(self, environment: Environment, cwd: str) -> dict[str, str]:
        """What the dependencies' tokens stand for: absolute paths."""
        for path in self._paths:
            self._places[path.name] = _absolute(environment.apply(path.path), cwd)
        for git in self._gits:
            self._places[git.name] = f"{_absolute(environment.apply(git.path), cwd)}/{git.name}"
            self._urls[git.name] = environment.apply(git.url)
        return dict(self._places)

    def check(self, findings: Findings) -> None:
        """Note the paths that are not there, as far as that can be said before a run has a directory."""
        for path in self._paths:
            place = self._places[path.name]
            if _OUTPUT not in place and not os.path.exists(place):  # noqa: PTH110 - text in, text out
                _missing(path, place, findings)

    def prepare(self, directory: str) -> None:
        """Clone the repositories and check all paths. Raises StudyError with everything that went wrong."""
        findings = Findings(self.file)
        for git in self._gits:
            self._clone(git, self._places[git.name].replace(_OUTPUT, directory), directory, findings)
        for path in self._paths:
            place = self._places[path.name].replace(_OUTPUT, directory)
            if not os.path.exists(place):  # noqa: PTH110
                _missing(path, place, findings)
        findings.raise_if_wrong()

    def _clone(self, git: GitEntry, place: str, directory: str, findings: Findings) -> None:
        url = self._urls[git.name].replace(_OUTPUT, directory)
        if os.path.exists(place) and (not os.path.isdir(place) or os.listdir(place)):  # noqa: PTH110, PTH112, PTH208
            _, origin = _git(f"--git-dir={place}/.git", "config", "--get", "remote.origin.url")
            if origin.strip() != url:
                what = f"{place} is there already, and is no clone of {url}"
                findings.wrong(git.line, git.key, what, "remove it, or say another `path`")
            return
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        # Cloned beside its place and then moved, so that a clone that broke off is never taken for a whole one.
        fresh = f"{place}.partial-{os.getpid()}"
        code, said = _git("clone", "--quiet", "--", url, fresh)
        if code == 0 and git.ref:
            code, said = _git("-C", fresh, "checkout", "--quiet", git.ref)
        if code == 0:
            os.rename(fresh, place)  # noqa: PTH104
            return
        import shutil

        shutil.rmtree(fresh, ignore_errors=True)
        last = said.strip().splitlines()[-1] if said.strip() else f"git ended with {code}"
        what = f"cannot fetch {git.name} from {url}{' at ' + git.ref if git.ref else ''}: {last}"
        findings.wrong(git.line, git.key, what, "check the address, the network and your rights")


def _git(*arguments: str) -> tuple[int, str]:
    import subprocess

    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        result = subprocess.run(
            ["git", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
        )
    except OSError as error:
        return 127, f"git cannot be run: {error.strerror}"
    return result.returncode, result.stdout if result.returncode == 0 else result.stderr


def _missing(path: PathEntry, place: str, findings: Findings) -> None:
    findings.wrong(path.line, path.key, f"{place} is not there", "relative paths start where the study is run from")


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith(_OUTPUT) else os.path.abspath(os.path.join(cwd, path))  # noqa: PTH100, PTH118
