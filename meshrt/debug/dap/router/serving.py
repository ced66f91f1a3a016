"""The router of a program, served at a port or at a unix socket; and the entry of launch.json that leads there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from meshrt.debug.dap.operations import Ports
from meshrt.debug.dap.router.admission import Admission, LoopbackAdmission, UnixAdmission
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.launch_json import NAME, adapter_entry, entry, shown, write_launch_json
from meshrt.debug.dap.router.listening import DEFAULT_PORT, listen_at_path, listen_at_port, remove_left_over
from meshrt.debug.dap.router.router import Router
from meshrt.debug.dap.wire import Fields
from meshrt.errors import UsageError
from meshrt.inspect.programs import NoProgram, choose, command_of, describe
from meshrt.show.status import ExitCode
from meshrt.transport.loopback import LoopbackTable
from meshrt.transport.tools import Program, connect

__all__ = ["own_router", "serve", "show_adapter_entry", "show_entry"]


def serve(run: str, port: int | None, path: Path | None, folder: Path | None) -> int:
    """Serve until the program ends, or Ctrl-C. Returns the exit code.

    Args:
        run: The program, as `choose` takes it.
        port: Of the loopback interface; 0: any; None: `DEFAULT_PORT`.
        path: Of a unix socket, in place of a port.
        folder: Where the entry is written; None: it is shown.
    Raises:
        UsageError, NoProgram, MeshError, OSError: It cannot.
    """
    if folder is not None and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; the program comes first: meshrt dap RUN --write-launch-json")
    program = choose(run, how="meshrt dap RUN")
    return asyncio.run(_serve(program, port, path, folder))


def show_entry(run: str, port: int | None, folder: Path | None) -> None:
    """Write, or show, the entry that leads to a port at which the program is served already. Raises as `serve`."""
    at, token = _served(choose(run, how="meshrt dap --no-serve RUN"), port)
    print(_configured(folder, entry(at, token)), end="")


def show_adapter_entry(folder: Path | None) -> None:
    """Write, or show, the entry with which an IDE starts ``meshrt dap --stdio``. Raises UsageError, OSError."""
    print(_configured(folder, adapter_entry()), end="")


async def _serve(program: Program, wanted: int | None, path: Path | None, folder: Path | None) -> int:
    with contextlib.ExitStack() as stack:
        token, port = "", 0
        admission: Admission = UnixAdmission()
        if path is not None:
            listener = stack.enter_context(listen_at_path(path))
            stack.callback(path.unlink, missing_ok=True)
        else:
            table = stack.enter_context(contextlib.closing(LoopbackTable()))
            listener = stack.enter_context(listen_at_port(DEFAULT_PORT if wanted is None else wanted, table))
            # A new token for each start: an old one that leaks is not valid at any port.
            token, port, admission = secrets.token_hex(16), listener.getsockname()[1], LoopbackAdmission(table)
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        router = Router(program, token, admission, over.set)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, over.set)
        await router.start(port)
        # Before anything is said: what is there may be no launch.json.
        more = _configured(folder, entry(port, token)) if port else ""
        create = loop.create_server if port else loop.create_unix_server
        server = await create(router.connection, sock=listener)
        where = f"127.0.0.1:{port}" if port else str(path)
        print(f"an IDE can attach to pid {program.pid}, {command_of(program)}, at {where}\n{more}", end="")
        sys.stdout.flush()
        await over.wait()
        server.close()
        print("the program has ended" if router.over else "meshrt dap ends; ranks that were stopped in the IDE resume")
        await router.close()
    return ExitCode.OK


@contextlib.asynccontextmanager
async def own_router(arguments: Fields, run: str) -> AsyncIterator[str]:
    """Run the router of a session of the mesh whose process an IDE has started. Yields the path of its unix socket.

    It ends with that session.

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


def _configured(folder: Path | None, ours: Fields) -> str:
    """Write the entry, or return it, and what is said of that."""
    if folder is not None:
        return f"{write_launch_json(folder, ours)}: the entry '{NAME}' attaches\n"
    return f"with this entry of launch.json (--write-launch-json writes it):\n{shown(ours)}\n"


def _served(program: Program, wanted: int | None) -> tuple[int, str]:
    """Return where IDEs can attach to a program, and what they have to show. Raises UsageError, MeshError."""
    with contextlib.closing(connect(program)) as connection:
        found = {each.port: each.token for each in connection.ask(Ports()).ports}
    port = next(iter(found)) if wanted is None and len(found) == 1 else (DEFAULT_PORT if wanted is None else wanted)
    if port not in found:
        others = f"; it listens at {', '.join(map(str, sorted(found)))}" if found else ""
        raise UsageError(f"no meshrt dap of pid {program.pid} listens at port {port}{others}; meshrt dap starts one")
    return port, found[port]
