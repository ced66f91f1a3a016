"""``meshrt dap``: one port for an IDE, and behind it every rank of a running program."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import socket
import stat
import sys
from pathlib import Path

from meshrt.debug.dap.router.launch_json import NAME, configuration_for, write_launch_json
from meshrt.debug.dap.router.router import Router
from meshrt.errors import UsageError
from meshrt.inspect.commands import run_command
from meshrt.inspect.programs import choose, command_of
from meshrt.transport.directories import make_runtime_base, write_atomic
from meshrt.transport.tools import Program

__all__ = ["main"]

_ABOUT = """Let an IDE attach to all ranks of a running program, through one port of this machine. VS Code, nvim-dap and
other clients of the Debug Adapter Protocol attach with one launch configuration; --write-launch-json writes it. The
ranks need debugpy (pip install 'meshrt[dap]'); it is loaded in a rank when an IDE attaches to it.

RUN is the id or the pid of a program, as meshrt ps shows it; without it, it is the one that runs."""

_EPILOG = (
    "It serves until the program ends, or Ctrl-C: ranks that stand in the IDE go on then. Exit code: 0; 1 if it cannot "
    "listen, or the program does not answer; 2 if it was asked wrongly."
)
PORT = 5678


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="meshrt dap", description=_ABOUT, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="the program")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--port", type=_port, default=PORT, metavar="PORT", help=f"of the loopback interface ({PORT}; 0: any)"
    )
    where.add_argument("--socket", type=Path, metavar="PATH", help="a unix socket instead, for this user alone")
    parser.add_argument(
        "--write-launch-json",
        nargs="?",
        const=Path("."),
        type=Path,
        metavar="FOLDER",
        help="write the entry 'meshrt' into FOLDER/.vscode/launch.json (of this folder)",
    )
    parser.add_argument(
        "--no-serve", action="store_true", help="only show, or write, the entry: something else listens at PORT"
    )
    given = parser.parse_args(arguments)
    return run_command("meshrt dap", lambda: _run(given))


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")
    return int(text)


def _run(given: argparse.Namespace) -> int:
    if given.socket and (given.no_serve or given.write_launch_json):
        raise UsageError("launch.json names a port; a unix socket has no entry there")
    if given.no_serve:
        print(_configured(given.write_launch_json, given.port, read_token()), end="")
        return 0
    folder = given.write_launch_json
    if folder is not None and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; a program is named first: meshrt dap RUN --write-launch-json")
    program = choose(given.run, how="meshrt dap RUN")
    return asyncio.run(_serve(program, given))


async def _serve(program: Program, given: argparse.Namespace) -> int:
    listener = _listening(given.socket, given.port)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    token = "" if given.socket else read_token()
    try:
        router = Router(program, token, over.set)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, over.set)
        await router.start()
        if given.socket:
            server = await loop.create_unix_server(router.connection, sock=listener)
            where = str(given.socket)
        else:
            server = await loop.create_server(router.connection, sock=listener)
            where = f"127.0.0.1:{listener.getsockname()[1]}"
        # Before anything is said: what is there may be no launch.json.
        more = "" if given.socket else _configured(given.write_launch_json, listener.getsockname()[1], token)
        print(f"an IDE can attach to pid {program.pid}, {command_of(program)}, at {where}\n{more}", end="")
        sys.stdout.flush()
        await over.wait()
        server.close()
        print("the program has ended" if router.over else "left; ranks that stood in the IDE go on")
        await router.close()
    finally:
        listener.close()
        if given.socket:
            given.socket.unlink(missing_ok=True)
    return 0


def _configured(folder: Path | None, port: int, token: str) -> str:
    """Write the entry, or return it, and what is said of that."""
    if folder is not None:
        return f"{write_launch_json(folder, port, token)}: the entry '{NAME}' attaches\n"
    return f"with this entry of launch.json (--write-launch-json writes it):\n{configuration_for(port, token)}\n"


def _listening(path: Path | None, port: int) -> socket.socket:
    if path is None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            listener.close()
            raise OSError(f"port {port} cannot be listened at: {error.strerror}; --port 0 takes any") from error
    else:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.stat().st_mode):
                raise UsageError(f"{path} is there, and is no socket")
            _remove_left_over(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            listener.close()
            # One that is too long has no number, and so no text of the system's.
            raise OSError(f"{path} cannot be listened at: {error.strerror or error}") from error
        finally:
            os.umask(before)
    listener.listen(128)
    return listener


def _remove_left_over(path: Path) -> None:
    """Remove a socket that nobody listens at any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise UsageError(f"somebody listens at {path} already")


def read_token() -> str:
    """Return the token of this user: the same for every program, so that launch.json stays right. 0600."""
    given = os.environ.get("MESHRT_DAP_TOKEN")
    if given:
        return given
    path = make_runtime_base() / "dap.token"
    with contextlib.suppress(FileNotFoundError):
        known = path.read_text().strip()
        if not known:
            raise UsageError(f"{path} is empty: remove it, and the next meshrt dap makes another one")
        return known
    token = secrets.token_hex(16)
    mine = path.with_name(f".{path.name}.{os.getpid()}")
    write_atomic(mine, token + "\n")
    try:
        os.link(mine, path)  # whole, or not at all; and only one of two that come at once
    except FileExistsError:
        return path.read_text().strip()
    finally:
        mine.unlink()
    return token
