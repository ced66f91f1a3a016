"""``meshrt dap``: one port for an IDE, and behind it every rank of a running program."""

from __future__ import annotations

import asyncio
import os
import stat

from meshrt.commandline.command import Arguments
from meshrt.debug.dap.router.stdio import serve_stdio
from meshrt.errors import UsageError
from meshrt.show.status import ExitCode

__all__ = ["show"]


def show(given: Arguments) -> int:
    """Run ``meshrt dap``. Returns the exit code."""
    if given["stdio"]:
        return _run_stdio(given)
    if given["socket"] and (given["no_serve"] or given["write_launch_json"]):
        raise UsageError("an entry of launch.json contains a port; an entry for a unix socket is not possible")
    from meshrt.debug.dap.router import serving  # start-up: a process that an IDE starts for a rank needs none of it

    if given["no_serve"]:
        serving.show_entry(given["run"], given["port"], given["write_launch_json"])
        return ExitCode.OK
    return serving.serve(given["run"], given["port"], given["socket"], given["write_launch_json"])


def _run_stdio(given: Arguments) -> int:
    if given["socket"] or given["port"] is not None:
        raise UsageError("--stdio excludes --port and --socket: the IDE communicates with meshrt dap through pipes")
    if given["no_serve"] or given["write_launch_json"]:
        if given["run"]:
            raise UsageError('the entry works for any program; "meshRun" in the entry chooses one of several')
        from meshrt.debug.dap.router import serving  # start-up: as above

        serving.show_adapter_entry(given["write_launch_json"])
        return ExitCode.OK
    if not (_is_pipe(0) and (_is_pipe(1) or os.isatty(1))):
        raise UsageError(
            "an IDE starts meshrt dap --stdio, with pipes as standard input and output; "
            "meshrt dap --stdio --write-launch-json configures VS Code for that"
        )
    return asyncio.run(serve_stdio(given["run"]))


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # it is closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
