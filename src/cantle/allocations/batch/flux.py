"""What does Flux say of the instance that we are in, and how are runners brought up there?

By `flux exec`, which starts a process on each broker and takes no resources, so that what tasks start by `flux run` has all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .hostlists import expand
from .job import Ask, Host, Invite, Job, Start


class Flux:
    """An instance of Flux that is the user's own: a batch job, an allocation, or one inside another system's job."""

    name = "Flux"
    noise: Sequence[str] = ()
    sayings: Sequence[tuple[str, str]] = (
        ("No route to host", "a broker of the instance is gone"),
        ("Unable to connect to Flux", "the instance is over, or FLUX_URI is not its address"),
        ("Operation not permitted", "only the owner of an instance may start processes in it"),
    )

    def job(self, environ: Mapping[str, str], ask: Ask) -> Job | None:
        """The hosts of the instance, in the order of its brokers."""
        if "FLUX_URI" not in environ:
            return None
        names = expand(ask(("flux", "getattr", "hostlist")).strip())
        if not names:
            raise ValueError("FLUX_URI is set, but `flux getattr hostlist` names no hosts: is the instance over?")
        number = environ.get("FLUX_ENCLOSING_ID") or environ.get("FLUX_JOB_ID") or environ["FLUX_URI"]
        return Job(self.name, number, tuple(Host(name) for name in names))

    def seconds_left(self, job: Job, environ: Mapping[str, str], ask: Ask, now: float) -> float | None:  # noqa: ARG002
        """By `flux job timeleft`, in seconds; an instance without an end says infinity."""
        try:
            left = float(ask(("flux", "job", "timeleft")).strip())
        except ValueError:
            return None
        return left if left < float("inf") else None

    def starts(self, hosts: Sequence[Host], job: Job, invite: Invite, environ: Mapping[str, str]) -> list[Start]:  # noqa: ARG002
        """One `flux exec` for all; brokers are named by their ranks."""
        ranks = ",".join(str(i) for i, each in enumerate(job.hosts) if each in hosts)
        return [Start(tuple(hosts), ("flux", "exec", f"--rank={ranks}", "--noinput", *invite(())))]
