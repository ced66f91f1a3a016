"""`proc_mesh`: what a script calls first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from meshrt.engine.agent_process import started_early
from meshrt.errors import ShutdownError

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
        from meshrt.mesh.proc_mesh import make_mesh  # start-up: half of the time until the first call, as the agent's

        return make_mesh(
            name=name,
            env=env,
            setup=setup,
            preload=preload,
            post_mortem=post_mortem,
            devices=devices,
            watchdog=watchdog,
            dap=dap,
            logs=logs,
            engine=engine,
            sizes=sizes,
        )
