"""What holds for all tests: no skips where they are forbidden, patience with slow machines, and a clean environment."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

NO_SKIP = os.environ.get("CANTLE_NO_SKIP", "") not in ("", "0")

# A busy machine is slow, which is no finding. In CI the examples are the same each time, so that a failure stays a failure.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=NO_SKIP)
settings.load_profile("here")


_AROUND = ("CANTLE_", "SLURM_", "PBS_", "LSB_", "FLUX_", "OMPI_", "PMI_", "PMIX_", "PE_HOSTFILE")


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run within a task of Cantle's, or in a batch job, must not take its environment for their own."""
    for name in [name for name in os.environ if name.startswith(_AROUND) and name != "SLURM_CONF"]:
        monkeypatch.delenv(name)


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With CANTLE_NO_SKIP=1 what would have been skipped has failed; expected failures stay what they are."""
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was not to be skipped (CANTLE_NO_SKIP=1): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _forbid_skip(report)
    return report
