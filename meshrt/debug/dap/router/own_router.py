"""The router of a session of the mesh whose process an IDE has started. It ends with that session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

from meshrt.debug.dap.router.admission import UnixAdmission
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.listening import listen_at_path, remove_left_over
from meshrt.debug.dap.router.router import Router
from meshrt.debug.dap.wire import Fields
from meshrt.errors import UsageError
from meshrt.inspect.programs import NoProgram, choose, describe

__all__ = ["own_router"]


@contextlib.asynccontextmanager
async def own_router(arguments: Fields, run: str) -> AsyncIterator[str]:
    """Run the router of a program while the session lasts. Yields the path of its unix socket.

    Args:
        arguments: The arguments of the attach request.
        run: The program if ``arguments`` name none; "": the only one.
    Raises:
        MeshError, OSError: The arguments are not valid; there is no such program, or it does not answer.
    """
    wanted = Configuration.read(arguments).run or run
    try:
        program = choose(wanted, how='"meshRun" in launch.json, or meshrt dap --stdio RUN', asks=False)
    except NoProgram as error:
        raise UsageError("; ".join([str(error), *map(describe, error.choices)])) from None
    path = program.directory / f"dap-{os.getpid()}"
    remove_left_over(program.directory.glob("dap-*"))
    with listen_at_path(path) as listener:
        try:
            router = Router(program, "", UnixAdmission(), lambda: None, socket=str(path))
            loop = asyncio.get_running_loop()
            closing: set[asyncio.Task[None]] = set()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, lambda: closing.add(loop.create_task(router.close())))
            await router.start()
            server = await loop.create_unix_server(router.connection, sock=listener)
            yield str(path)
            server.close()
            await router.leave()
        finally:
            path.unlink(missing_ok=True)
