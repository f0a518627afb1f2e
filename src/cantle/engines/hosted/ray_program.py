"""What runs of Ray on the nodes of a partition: `ray start`, watched, or what lets a node go.

    python -m cantle.engines.hosted.ray_program head PORT NAME HOST FOLDER CPUS GPUS MEMORY_MIB OBJECTS_MIB
    python -m cantle.engines.hosted.ray_program worker ADDRESS NAME HOST FOLDER CPUS GPUS MEMORY_MIB OBJECTS_MIB
    python -m cantle.engines.hosted.ray_program retire ADDRESS NAME

HOST is the node's name, FOLDER the name of one for Ray's files. What Ray prints goes to stderr, whose last lines are what is
told when it dies.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cantle.engines.hosted.addresses import own_address
from cantle.engines.hosted.ray import READY

_NOISE = b"[state-dump]"
"""Pages of it, behind which the reason of a death would not be seen."""
_STARTED = "Ray runtime started"
_START = "from ray.scripts.scripts import main; main()"
_CLOSING_S = 1.5
_RETIRE_S = 50
_PORTS = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
"""Free ones: several Ray nodes may share a machine."""
_LONGEST = 40
"""So long a folder's path may be, with some sixty characters of Ray's behind it: sockets have at most 107."""


def serve(role: str, where: str, name: str, host: str, folder: str, *amounts: str) -> int:
    """Run Ray on this node until TERM, or until it dies."""
    parent = tempfile.gettempdir()
    place = Path(parent if len(parent) + len(folder) < _LONGEST else "/tmp") / folder
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    address = own_address(host)
    head = ["--head", f"--port={where}", "--include-dashboard=false", f"--temp-dir={place}"]
    words = head if role == "head" else [f"--address={where}", f"--temp-dir={place}"]
    command = [sys.executable, "-u", "-c", _START, "start", "--block", "--disable-usage-stats", *words]
    command += [f"--node-ip-address={address}", f"--node-name={name}", *_PORTS, *_amounts(*amounts)]
    ray = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        _pass_on(ray, f"{address}:{where}" if role == "head" else where)
        return ray.wait() or 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ray.terminate()
        try:
            ray.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            ray.kill()
        return 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _amounts(cpus: str, gpus: str, memory_mib: str, objects_mib: str) -> list[str]:
    """What Ray may count on here."""
    words = [f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
    if int(objects_mib):
        words += [
            f"--object-store-memory={int(objects_mib) << 20}",
            f"--memory={max(1, int(memory_mib) - int(objects_mib)) << 20}",
        ]
    return words


def _pass_on(ray: subprocess.Popen[bytes], address: str) -> None:
    """Let what Ray says go to stderr, and say that it serves when it says so."""
    assert ray.stdout is not None
    for line in ray.stdout:
        if line.startswith(_NOISE):
            continue
        sys.stderr.write(line.decode("utf-8", "replace"))
        sys.stderr.flush()
        if _STARTED.encode() in line:
            print(READY, address, flush=True)


def retire(address: str, name: str) -> int:
    """Let the node be given nothing more, and wait for a bounded time until Ray has left it."""
    from importlib import import_module

    # What `ray drain-node` uses; Ray has no other way, and its types are not told.
    raylet: Any = import_module("ray._raylet")
    autoscaler: Any = import_module("ray.core.generated.autoscaler_pb2")
    gcs: Any = import_module("ray.core.generated.gcs_pb2")
    head = raylet.GcsClient(address=address)

    def found() -> list[str]:
        alive = gcs.GcsNodeInfo.GcsNodeState.ALIVE
        nodes = head.get_all_node_info().values()
        return [info.node_id.hex() for info in nodes if info.node_name == name and info.state == alive]

    deadline_ms = int((time.time() + _RETIRE_S) * 1000)
    reason = autoscaler.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    for node in found():
        accepted, why = head.drain_node(node, reason, "its node leaves the partition", deadline_ms)
        if not accepted:
            print(f"Ray does not let the node go: {why}", file=sys.stderr)
            return 1
    while found() and time.time() * 1000 < deadline_ms:
        time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(retire(*sys.argv[2:]) if sys.argv[1] == "retire" else serve(*sys.argv[1:]))
