"""Ray: a raylet on each machine; the program is a driver on the first, which has no CPU for actors.

Otherwise its defaults, without dashboard. An array is put into the object store once, as Ray's users do.
"""

from __future__ import annotations

import json
import sys

from bench.hosts.protocol import Peer
from bench.hosts.raylets import start_raylets
from bench.scenarios import Settings
from tests.cluster.machines import Machine

__all__ = ["PEER"]


def command(made: list[Machine], what: str, settings: Settings) -> list[str]:
    """Return the command of the driver."""
    floor = f"BENCH_FLOOR={json.dumps([made[1].address])}"
    script = [sys.executable, "-m", "bench.hosts.ray_program", what, str(settings.ranks), str(int(settings.quick))]
    return made[0].command("env", "HOME=/tmp/home", "TMPDIR=/tmp", floor, *script)


PEER = Peer(command, start_raylets)
