"""What hosts.yml says about hosts, and what is wrong with it, by file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from cantle.allocations.hosts.host import Host
from cantle.errors import RequestError, StudyError
from cantle.readers.hosts import hosts_in


def read(tmp_path: Path, text: str) -> dict[str, Host]:
    file = tmp_path / "hosts.yml"
    file.write_text(text)
    return hosts_in([file])


def test_a_host_may_say_all_that_there_is_to_say(tmp_path):
    (tmp_path / "in.dat").write_text("x")
    known = read(
        tmp_path,
        """\
hosts:
  server1:
    address: me@server1.example.org
    cores: 16
    gpus: 2
    memory: 64 GiB
    kind: fat
    machine: rack1
    resources: {tape: 2, licence: 1}
    modules: [gcc/13, openmpi]
    source: /opt/env.sh
    setup:
      - ulimit -s unlimited
    env: {OMP_NUM_THREADS: 1, VERSION: 1.10}
    environment: clean
    copy: in.dat
    directory: ~/scratch
    python: ~/venv/bin/python
    container: apptainer exec 'my image.sif'
""",
    )
    assert known["server1"] == Host(
        name="server1",
        address="me@server1.example.org",
        cores=16,
        gpus=2,
        memory_mib=65536,
        kind="fat",
        machine="rack1",
        named=(("licence", 1), ("tape", 2)),
        modules=("gcc/13", "openmpi"),
        source=("/opt/env.sh",),
        setup=("ulimit -s unlimited",),
        env={"OMP_NUM_THREADS": "1", "VERSION": "1.10"},
        environment="clean",
        copy=(str(tmp_path / "in.dat"),),
        directory="~/scratch",
        python="~/venv/bin/python",
        container=("apptainer", "exec", "my image.sif"),
    )
    assert known["server1"].steps == (
        "module load gcc/13",
        "module load openmpi",
        "source /opt/env.sh",
        "ulimit -s unlimited",
    )


def test_an_entry_may_stand_for_a_set_of_nodes_and_defaults_for_all(tmp_path):
    known = read(
        tmp_path,
        """\
defaults:
  python: /opt/python
  env: {A: all, B: all}
hosts:
  node[01-02]: {address: "{name}-ib", cores: 4}
  lonely:
  other: {python: /usr/bin/python3, env: {B: own}}
""",
    )
    assert list(known) == ["node01", "node02", "lonely", "other"]
    assert (known["node01"].address, known["node02"].address) == ("node01-ib", "node02-ib")
    assert (known["node01"].cores, known["node01"].python) == (4, "/opt/python")
    assert (known["lonely"].address, known["lonely"].python) == ("lonely", "/opt/python")
    assert known["other"].python == "/usr/bin/python3"
    assert known["other"].env == {"A": "all", "B": "own"}


def test_the_nearer_file_counts_for_a_host_that_both_know(tmp_path):
    near, far = tmp_path / "near.yml", tmp_path / "far.yml"
    near.write_text("hosts: {a: {cores: 1}}")
    far.write_text("hosts: {a: {cores: 2}, b: {cores: 3}}")
    known = hosts_in([near, far])
    assert (known["a"].cores, known["b"].cores) == (1, 3)


@pytest.mark.parametrize(
    ("entry", "line", "key", "told"),
    [
        ("a: {core: 4}", 2, "hosts.a.core", "did you mean 'cores'?"),
        ("a: {cores: 0}", 2, "hosts.a.cores", "at least 1"),
        ("a: {cores: many}", 2, "hosts.a.cores", "must be a whole number"),
        ("a: {gpus: -1}", 2, "hosts.a.gpus", "at least 0"),
        ("a: {memory: a lot}", 2, "hosts.a.memory", "'64 GB'"),
        ("a: {address: -oProxyCommand=x}", 2, "hosts.a.address", "cannot be the address of a host"),
        ('a: {address: "b c"}', 2, "hosts.a.address", "~/.ssh/config"),
        ("a: {environment: inheritt}", 2, "hosts.a.environment", "did you mean 'inherit'?"),
        ("a: {directory: scratch}", 2, "hosts.a.directory", "must begin with / or ~/"),
        ("a: {copy: nothing.dat, directory: /d}", 2, "hosts.a.copy", "there is no"),
        ("a: {copy: hosts.yml}", 2, "hosts.a.copy", "there is no `directory` to copy to"),
        ("a: {env: {1X: y}}", 2, "hosts.a.env.1X", "cannot be the name of a variable"),
        ("a: {env: {X: [y]}}", 2, "hosts.a.env.X", "must be text or a number, not a list"),
        ("a: {env: [X]}", 2, "hosts.a.env", "must be a mapping, not a list"),
        ("a: {setup: {x: y}}", 2, "hosts.a.setup", "must be text, not a mapping"),
        ("a: {setup: [one, {x: y}]}", 2, "hosts.a.setup[1]", "must be text, not a mapping"),
        ("a: {resources: {tape: 0}}", 2, "hosts.a.resources.tape", "at least 1"),
        ('a: {container: "\'"}', 2, "hosts.a.container", "cannot be split into words"),
        ("a: {kind: }", 2, "hosts.a.kind", "must be text, not nothing"),
        ("a: 4", 2, "hosts.a", "must be a mapping, not a number"),
        ("a:4: {}", 2, "hosts.a:4", "'a:4' is not the name of a host"),
        ("node[4-1]: {}", 2, "hosts.node[4-1]", "no set of nodes"),
        ("a: {}\n  node1: {}\n  node[1-2]: {}", 4, "hosts.node[1-2]", "node1 stands here and before"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_key(tmp_path, entry, line, key, told):
    with pytest.raises(StudyError) as wrong:
        read(tmp_path, f"hosts:\n  {entry}\n")
    problem = wrong.value.problems[0]
    assert (problem.file, problem.line, problem.key) == (str(tmp_path / "hosts.yml"), line, key)
    assert told in str(problem)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("server1: {cores: 4}\n", "'hosts' "),
        ("defaults: {cores: 4}\n", "there are none"),
        ("hosts: [a]\n", "must be a mapping, not a list"),
        ("hosts: {a: {cores: 4\n", "not YAML"),
    ],
)
def test_a_file_that_lists_no_hosts_is_told(tmp_path, text, told):
    with pytest.raises(StudyError) as wrong:
        read(tmp_path, text)
    assert told in str(wrong.value) or (told == "'hosts' " and "known are hosts, defaults" in str(wrong.value))


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(RequestError, match=r"cannot read .*none\.yml: No such file"):
        hosts_in([tmp_path / "none.yml"])
