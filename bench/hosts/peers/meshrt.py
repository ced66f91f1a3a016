"""meshrt: the programs of this package, in the network of the first machine; they start agents on the others."""

from __future__ import annotations

import json
import sys

from bench.hosts.protocol import Peer
from bench.scenarios import Settings
from tests.cluster.machines import Machine

__all__ = ["PEER"]


def command(made: list[Machine], what: str, settings: Settings) -> list[str]:
    """Return the command of a program: ``MODULE.PART``, or a part of ``program``.

    One that finds its hosts by Ray is all on the first machine, with the raylet of that.
    """
    module, _, part = what.rpartition(".")
    agents = {machine.name: machine.command("env", "HOME=/tmp/home") for machine in made[1:]}
    told = [f"BENCH_AGENTS={json.dumps(agents)}", f"BENCH_FLOOR={json.dumps([made[1].address, *made[1].command()])}"]
    script = [sys.executable, "-m", f"bench.hosts.{module or 'program'}", part]
    script += [str(settings.ranks), str(int(settings.quick))]
    if part == "ray":
        return made[0].command("env", "HOME=/tmp/home", "TMPDIR=/tmp", *told, *script)
    return [*made[0].switch.inside, "nsenter", f"--net=/proc/{made[0].pid}/ns/net", "env", *told, *script]


PEER = Peer(command)
