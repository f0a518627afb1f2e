"""Which parameters does a generator's file make? (Maestro's `--pgen`)

The file defines `get_custom_generator(env, **kwargs)`. It is run once; what came out is kept with the run, so that a resumed
run has the same parameters, even if the generator rolls dice or its inputs have changed.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cantle.errors import Problem, RequestError, StudyError, said_by

from .maestrowf_stand_in import StudyEnvironment, Variable, standing_in
from .tokens import Parameter

_FUNCTION = "get_custom_generator"


def arguments(pargs: tuple[str, ...]) -> dict[str, str]:
    """`KEY:VALUE` texts as a mapping. Raises RequestError on anything else."""
    found = {}
    for text in pargs:
        key, colon, value = text.partition(":")
        if not colon or not key.strip():
            raise RequestError(f"--pargs {text!r}: an argument of the generator is written KEY:VALUE")
        found[key.strip()] = value.strip()
    return found


def generated(
    file: str, pargs: tuple[str, ...], variables: Mapping[str, Any], output: str, specroot: str
) -> list[Parameter]:
    """Run the generator in this file.

    It is given the variables as its environment, the `pargs`, OUTPUT_PATH (where studies are put: the run has no directory
    yet) and SPECROOT. Raises RequestError when the file cannot be read, StudyError when it does not do what it should.
    """
    kwargs: dict[str, Any] = {**arguments(pargs), "OUTPUT_PATH": output, "SPECROOT": Variable("SPECROOT", specroot)}
    path = str(Path(file).absolute())
    try:
        source = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"--pgen {file}: cannot be read: {error}") from None
    environment = StudyEnvironment({**variables, "SPECROOT": specroot, "OUTPUT_PATH": output})
    module = types.ModuleType("custom_gen")
    module.__file__ = path
    before = sys.modules.get("custom_gen")
    sys.modules["custom_gen"] = module
    try:
        with standing_in():
            exec(compile(source, path, "exec"), module.__dict__)
            function = module.__dict__.get(_FUNCTION)
            if not callable(function):
                raise StudyError([Problem(file, 0, "", f"defines no function {_FUNCTION}(env, **kwargs)")])
            return _parameters(file, function(environment, **kwargs))
    except (Exception, SystemExit) as error:
        if isinstance(error, StudyError):
            raise
        raise StudyError([_problem(file, path, error)]) from error
    finally:
        del sys.modules["custom_gen"]
        if before is not None:
            sys.modules["custom_gen"] = before


def _parameters(file: str, generator: Any) -> list[Parameter]:
    if not hasattr(generator, "get_combinations"):
        what = f"{_FUNCTION} returned {type(generator).__name__}, not a ParameterGenerator"
        raise StudyError([Problem(file, 0, "", what, "return the generator that you added parameters to")])
    by_key: dict[str, Parameter] = {}
    combinations = 0
    for combination in generator.get_combinations():
        combinations += 1
        names = list(combination._names.values())
        labels = list(combination._labels.values())
        for i, (token, value) in enumerate(combination._params.items()):
            key = token[token.index("(") + 1 : -1]
            parameter = by_key.get(key)
            if parameter is None:
                parameter = by_key[key] = Parameter(key, str(names[i]), [], [])
            parameter.values.append(str(value))
            parameter.labels.append(str(labels[i]))
    if getattr(generator, "parameters", None) and not combinations:
        raise StudyError([Problem(file, 0, "", "its parameters have no values, so there is nothing to run")])
    uneven = [key for key, parameter in by_key.items() if len(parameter.values) != combinations]
    if uneven:
        raise StudyError([Problem(file, 0, "", f"{', '.join(uneven)} are missing in some of its combinations")])
    return list(by_key.values())


def _problem(file: str, path: str, error: BaseException) -> Problem:
    line = error.lineno or 0 if isinstance(error, SyntaxError) and error.filename == path else 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    mend = ""
    if isinstance(error, ImportError) and "maestrowf" in str(error):
        mend = "generators may import ParameterGenerator and Combination from maestrowf.datastructures.core"
    return Problem(file, line, _FUNCTION, said_by(error), mend)
