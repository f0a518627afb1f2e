"""`cantle`, with a policy of the tests' own: `GROWS=cpu:2` asks for two nodes of that kind when the run begins."""

from __future__ import annotations

import os
import sys
from typing import Any

from growing_rig import fixed

from cantle.cli.main import main
from cantle.core.decide import Decider

_make = Decider.__init__


def _with_scaler(self: Decider, *words: Any, **named: Any) -> None:
    _make(self, *words, **named)
    kind, _, count = os.environ["GROWS"].partition(":")
    self.scaler = fixed(kind, int(count))


if __name__ == "__main__":
    Decider.__init__ = _with_scaler  # type: ignore[method-assign]
    sys.exit(main())
