"""``meshrt run -n 8 train.py``: all ranks of a script on this machine.

This process is the root of a program with one mesh. Each of its ranks runs the script as one call of the actor `Main`,
so all tools see an ordinary actor. The first failure ends the call, and so all ranks, as under torchrun; then they are
started again, if restarts are left.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import sys

from meshrt.engine.launch.script import Script
from meshrt.errors import MeshError, one_line
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.proc_mesh import start_mesh
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Point
from meshrt.spmd.main import Main
from meshrt.spmd.parts import ACTOR
from meshrt.spmd.world import World

__all__ = ["run"]


def run(words: list[str], sizes: dict[str, int], max_restarts: int) -> int:
    """Run a script on all ranks of a mesh. Returns the exit status: 1 if a rank has failed."""
    return Script(words).guard(lambda: _run(words, sizes, max_restarts))


def _run(words: list[str], sizes: dict[str, int], max_restarts: int) -> None:
    """Run the script on all ranks, again where that is allowed. Raises the error of the first rank that fails."""
    run_id = secrets.token_hex(4)
    for attempt in range(max_restarts + 1):
        spec = _spec(sizes, run_id, attempt, max_restarts)
        with start_mesh(spec, Hosts()) as mesh:
            try:
                mesh.spawn(ACTOR, Main).run.call(words).get()
                return
            except MeshError as error:
                if attempt == max_restarts:
                    raise
                first = str(error).partition("\n")[0]
                said = f"attempt {attempt + 1} of {max_restarts + 1} has failed, all ranks are started again"
                print(f"meshrt: {said}: {one_line(first, 200)}", file=sys.stderr, flush=True)


def _spec(sizes: dict[str, int], run_id: str, attempt: int, max_restarts: int) -> MeshSpec:
    world = World(math.prod(sizes.values()), _free_port(), run_id, attempt, max_restarts)

    def variables(point: Point) -> dict[str, str]:
        return world.variables(point.rank, os.environ)

    name = "run" if not attempt else f"run-{attempt + 1}"
    return MeshSpec.make(name, sizes, variables, None, (), prefixed=False)


def _free_port() -> int:
    """Return a port that is free now, for ``MASTER_PORT``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
