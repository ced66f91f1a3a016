"""`proc_mesh`: what a script calls first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from meshrt.engine.agent_process import started_early
from meshrt.errors import ShutdownError, UsageError
from meshrt.mesh.default_engine import default_engine

if TYPE_CHECKING:
    from meshrt.mesh.engine import Engine
    from meshrt.mesh.environment import EnvOption
    from meshrt.mesh.proc_mesh import ProcMesh
    from meshrt.mesh.spec import Devices, PostMortem

__all__ = ["proc_mesh"]


def proc_mesh(
    *,
    name: str = "",
    env: EnvOption = None,
    setup: Callable[[], object] | None = None,
    preload: Iterable[str] = (),
    post_mortem: PostMortem = None,
    devices: Devices = "all",
    watchdog: float | None = None,
    dap: int | None = None,
    logs: str | None = None,
    engine: Engine | str | None = None,
    **sizes: int,
) -> ProcMesh:
    """Start one process per point of a mesh and return it; does not wait for them.

    ``proc_mesh(hosts=4, gpus=4)``: dimensions in the order given, row-major. Without any: the GPUs of this machine
    (dimension ``gpus``), or a single rank where there are none. Under ``meshrt launch``, what is missing of ``hosts``
    and ``gpus`` is all hosts of the launcher, and the GPUs of each.

    Args:
        name: Shown in listings; a short one is made up.
        env: Environment variables for the ranks: a dict, or a function of the `Point` that returns one; it may be an
            ``async def``. It runs here.
        setup: Runs once in every rank before the first actor is built; it may be an ``async def``.
        preload: Modules imported once, before the ranks are forked.
        post_mortem: What ranks do when an endpoint raises: True stops them there for the debugger, "dump" writes a file
            for it, False does neither; None leaves it to ``MESHRT_POST_MORTEM`` and the debugger.
        devices: "own" shows each rank one GPU: rank 0 of a host the first of those that the host was given, rank 1 the
            second, and so on (``CUDA_VISIBLE_DEVICES``; in torch it is ``cuda:0``). "all" shows each rank all of them.
        watchdog: Seconds after which a call of the script that is not answered is reported on the terminal, with the
            ranks and where they are; and again after twice the time. The call goes on.
        dap: A port of the loopback interface (0: any), at which an IDE can attach to the program from now on, as with
            ``meshrt dap``. The ranks need debugpy then (``meshrt dap --help``).
        logs: What the terminal shows of the output of these ranks, as in `logs`: ``"off"``, ``"ranks(0)"``,
            ``"fold=0.5 limit=100"``. None leaves it to `logs` and ``MESHRT_LOGS``.
        engine: Places the host agents; this machine by default, the hosts of the launcher under ``meshrt launch``. Also
            by name: "local", "ray". See `meshrt.engine`.
        **sizes: Dimension to size, each >= 1.
    Raises:
        UsageError: A size, a name or an option is invalid.
        SpawnError: This machine cannot hold so many processes.
    """
    if sys.is_finalizing():  # nothing can be imported any more
        raise ShutdownError("the interpreter is ending: no new mesh can be started")
    with started_early(engine is None or engine == "local"):
        # To load this takes half of the time until the first call; the agent needs the other half.
        from meshrt.mesh.engine import engine_of  # start-up: meanwhile
        from meshrt.mesh.hosts import Hosts  # start-up: meanwhile
        from meshrt.mesh.proc_mesh import start_mesh  # start-up: meanwhile
        from meshrt.mesh.spec import MeshSpec, check_port, check_watchdog, default_sizes  # start-up: meanwhile
        from meshrt.transport.process import current_runtime, has_runtime  # start-up: meanwhile

        seconds = None if watchdog is None else check_watchdog(watchdog)
        in_rank = has_runtime() and not current_runtime().is_root
        if watchdog is not None and in_rank:
            raise UsageError("watchdog= is for the script: a rank that waits is seen by the watchdog of its own caller")
        if dap is not None:
            check_port(dap)
            if in_rank:
                raise UsageError("dap= is for the script: an IDE attaches to the whole program")
        default = default_engine()
        if engine is None and default is not None:
            sizes = default.sizes(sizes)
        elif not sizes:
            sizes = default_sizes()
        placed_by = None if engine is None else engine_of(engine)
        spec = MeshSpec.make(name, sizes, env, setup, preload, post_mortem, devices, logs=logs)
        mesh = start_mesh(spec, Hosts(placed_by))
        if seconds is not None:
            mesh._owner().watch(mesh.mesh_id, seconds)
        if dap is not None:
            mesh._owner().listen_for_ide(dap)
        return mesh
