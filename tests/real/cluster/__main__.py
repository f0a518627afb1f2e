"""python tests/real/cluster COMMAND: bring a cluster up by hand, break it, take it down."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # called by its directory
    sys.path[0] = str(Path(__file__).parent.parent)

from cluster.cluster import Cluster, ClusterError, claim
from cluster.guard import guard
from cluster.packages import install
from cluster.settings import CHOSEN, settings


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(
        prog="python tests/real/cluster",
        description="A cluster of namespaces with ssh and Slurm. CANTLE_CLUSTER=N chooses another than number 0.",
    )
    commands = words.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("install", help="get the programs that it needs")
    commands.add_parser("up", help="bring it up, or mend it, and keep it until `down`")
    commands.add_parser("down", help="take it away")
    commands.add_parser("env", help='shell lines that make ssh and Slurm find it: eval "$(... env)"')
    commands.add_parser("guard", help="for tests: down when stdin closes").add_argument("number", type=int)
    on = commands.add_parser("on", help="run a command in a node")
    on.add_argument("node")
    on.add_argument("argv", nargs=argparse.REMAINDER)
    kill = commands.add_parser("kill", help="let something happen to a node")
    kill.add_argument("node")
    kill.add_argument("--how", default="power", help="power, crash, net, hang or slurmd")
    kill.add_argument("--tell", action="store_true", help="tell Slurm at once")
    commands.add_parser("heal", help="undo that").add_argument("node")
    commands.add_parser("add", help="a further node; prints its name")
    shape = commands.add_parser("shape", help="make a node's line bad; without options good again")
    shape.add_argument("node")
    shape.add_argument("--delay", type=float, default=0, metavar="MS", help="in each direction")
    shape.add_argument("--loss", type=float, default=0, metavar="PERCENT", help="in each direction")
    return words


def main() -> int:
    given = parser().parse_args()
    if given.command == "install":
        why = install()
        print(f"cluster: {why}" if why else "cluster: all programs are there", file=sys.stderr)
        return bool(why)
    cluster = Cluster(settings(getattr(given, "number", int(CHOSEN or 0))))
    if given.command == "guard":
        guard(cluster)
        return 0
    kept = cluster.settings.state / "kept"
    if given.command in ("up", "down"):
        name = claim(cluster.settings.number)
        if not name:
            raise ClusterError(
                f"tests use cluster {cluster.settings.number} right now; choose another: CANTLE_CLUSTER=1"
            )
        if given.command == "down" or not kept.exists():
            cluster.down()
        if given.command == "up":
            cluster.up()
            kept.touch()
    elif given.command == "env":
        for key in ("PATH", "SLURM_CONF"):
            print(f"export {key}='{cluster.env[key]}'")
    elif given.command == "on":
        done = cluster.start_on(given.node, given.argv)
        return done.wait()
    elif given.command == "kill":
        cluster.kill(given.node, given.how, given.tell)
    elif given.command == "heal":
        cluster.heal(given.node)
    elif given.command == "add":
        print(cluster.add())
    elif given.command == "shape":
        cluster.shape(given.node, given.delay, given.loss)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as problem:
        sys.exit(f"cluster: {problem}")
