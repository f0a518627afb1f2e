"""Does an engine for partitions keep its promises? It is asked for its programs in several partitions; nothing is started.

def test_my_engine_keeps_its_promises():
    check_hosted(MyEngine())
"""

from __future__ import annotations

from cantle.engines.hosted.base import Hosted, Meeting, Papers, Program, Site, Station

_PAPERS = Papers("AUTHORITY-IN-PEM", "CERTIFICATE-IN-PEM", "SECRET-KEY-IN-PEM")
_STATIONS = (
    Station(4, "n4", "machine4", "0-3", memory_mib=4096),
    Station(7, "n7", "machine7", "2-3,5", "0", 2048),
    Station(9, "n9", "machine9", "0"),
)


def check_hosted(hosted: Hosted) -> None:
    """Check that it answers the same to the same question, keeps to its folder, hides secrets, and tells each node apart."""
    assert hosted.name, "an engine has a name"
    for one_machine in (True, False):
        site = Site(3, "calc", "/run", "runners/hosted/3", _STATIONS[0], 12345, one_machine, lambda: _PAPERS)
        address = "head.example:4711"
        programs = [("head", hosted.head(site), hosted.head(site))]
        for station in _STATIONS:
            worker, again = hosted.worker(site, station, address), hosted.worker(site, station, address)
            programs.append((f"worker on {station.name}", worker, again))
            programs.append(
                ("retire", hosted.retire(site, station, address), hosted.retire(site, station, address)),
            )
        for role, program, again in programs:
            assert program == again, f"the same question gets the same answer ({role})"
            if program is not None:
                _check_program(role, program, site)
        workers = [program for role, program, _ in programs if role.startswith("worker") and program is not None]
        assert len({program.argv for program in workers}) == len(workers), "each worker is told its node or its share"
        _check_environment(hosted, site, address)
    _check_meeting(hosted)


def _check_program(role: str, program: Program, site: Site) -> None:
    assert program.argv, f"the {role} has words"
    assert all(isinstance(word, str) and "\0" not in word for word in program.argv), f"words are texts: {program.argv}"
    assert not (program.says and program.answers), f"the {role} is ready by one sign, not by two"
    assert program.within_s > 0, f"the {role} has some time to come up"
    for path in program.private:
        assert path.startswith(f"{site.directory}/"), f"{path} lies in the folder of the engine, {site.directory}"
    for word in (*program.argv, *(value or "" for value in program.env.values())):
        assert _PAPERS.key not in word, (
            f"the {role} finds its secrets in files, not in words or variables that others see"
        )


def _check_environment(hosted: Hosted, site: Site, address: str) -> None:
    env = hosted.environment(site, address)
    assert env == hosted.environment(site, address), "the same question gets the same variables"
    for name, value in env.items():
        assert isinstance(value, str), f"{name} is text"
        assert _PAPERS.key not in value, f"{name} stands in the journal, so it holds no secret"


def _check_meeting(hosted: Hosted) -> None:
    told = [hosted.of_process(Meeting("here", 5000, n, 2, n, 2, 0, 1, 8, 1)) for n in range(2)]
    assert all(isinstance(value, str) for each in told for value in each.values()), "variables of processes are texts"
