"""Does a launcher keep its promises? It is asked for several layouts; nothing is started.

def test_my_launcher_keeps_its_promises():
    check_launcher(MyLauncher())
"""

from __future__ import annotations

from cantle.engines.launchers.base import Host, Launcher, Layout, Prefix, Seat, Surroundings

_STEM = "/run/step/step.launch"
_STALE = ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


def check_launcher(launcher: Launcher, around: Surroundings | None = None) -> None:
    """Check that a launcher answers the same to the same question, says all hosts and ranks, and scrubs what is stale."""
    assert launcher.name, "a launcher has a name"
    around = around or Surroundings(environ=dict.fromkeys(_STALE, "7"))
    for layout in _layouts():
        said = launcher.prefix(layout, around, _STEM)
        assert said == launcher.prefix(layout, around, _STEM), "the same question gets the same answer"
        assert all(word and "\n" not in word for word in said.words), f"words are texts of one line: {said.words}"
        for path in said.files:
            assert path.startswith(_STEM), f"files are called {_STEM} and an ending, not {path}"
            assert any(path in word for word in (*said.words, *said.files.values())), f"nothing names the file {path}"
        if said.words:
            _check_words(said, layout)


def _check_words(said: Prefix, layout: Layout) -> None:
    everything = "\n".join((*said.words, *said.files.values()))
    if len(layout.hosts) > 1 and "host: " not in everything:  # some files number the hosts
        for host in layout.hosts:
            assert host.name in everything, f"the host {host.name} is named in the words or in a file"
    last = layout.ranks - 1
    assert str(layout.ranks) in everything or f"rank: {last}" in everything, (
        f"how many ranks there are is said, or where each belongs ({layout.ranks}): {everything}"
    )
    for name in _STALE:
        assert said.env.get(name, "kept") is None, f"{name} of somebody else's launch is removed"
    assert "SLURM_JOB_ID" not in said.env, "which job we are in stays known"


def _layouts() -> list[Layout]:
    one = Seat((0,)), Seat((1,))
    return [
        Layout((Host("n1", one), Host("n2", one))),
        Layout((Host("n1", (*one, Seat((2,)))), Host("n2", one[:1])), bound=True),
        Layout((Host("n2", (Seat((0, 1), ("0",)), Seat((2, 3), ("1",)))),), cores_each=2, gpus_each=1, gpus=2),
    ]
