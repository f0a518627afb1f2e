"""Whether docs/elastic.md names the policies and bounds that there are, and shows kinds that can be read."""

from __future__ import annotations

import re
from pathlib import Path

from cantle.cli.elastic import _SETTINGS
from cantle.core.scaling.naming import NAMES, is_built_in, require_known
from cantle.readers.kinds import kinds_in

PAGE = (Path(__file__).parent.parent / "docs" / "elastic.md").read_text()
POLICIES = PAGE.partition("## Policies\n")[2].partition("\n## ")[0]


def test_every_policy_is_named_and_everything_named_is_one() -> None:
    listed = POLICIES.partition("or a function of your own")[0].partition(": ")[2]
    named = re.findall(r"`([a-z][a-z0-9:-]*)`", listed)
    require_known(named)
    assert {word.partition(":")[0] for word in named} == set(NAMES)
    assert all(is_built_in(word) for word in named)


def test_every_bound_is_named() -> None:
    assert set(re.findall(r"`([a-z-]+)=\d", POLICIES)) == set(_SETTINGS)


def test_the_kinds_that_are_shown_can_be_read() -> None:
    shown = re.findall(r"--kinds '([^']+)'", PAGE)
    assert shown
    for text in shown:
        assert kinds_in(text, "the page")[0].kind.name == "cpu"
