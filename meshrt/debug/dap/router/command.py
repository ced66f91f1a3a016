"""``meshrt dap``: one port for an IDE, and behind it every rank of a running program."""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
from pathlib import Path

from meshrt.debug.dap.router.listening import DEFAULT_PORT
from meshrt.debug.dap.router.stdio import serve_stdio
from meshrt.errors import UsageError
from meshrt.inspect.installing import install_extra
from meshrt.show.status import ExitCode, run_command

__all__ = ["main"]

_ABOUT = """Let an IDE attach to all ranks of a running program: through a process that the IDE starts (--stdio), or
through one port of this machine. VS Code, nvim-dap and other clients of the Debug Adapter Protocol attach with one
launch configuration; --write-launch-json writes it, and with --stdio it is right for all programs to come. The
ranks need debugpy, which is loaded in a rank when an IDE attaches to it. To install it for this Python:
  {install}

RUN is the id or the pid of a program, as meshrt ps shows it; without it, it is the one that runs."""

_EPILOG = (
    "It serves until the program ends, or Ctrl-C: ranks that stand in the IDE go on then. Exit code: 0; 1 if it cannot "
    "listen, or the program does not answer; 2: usage error."
)


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        self.description = _ABOUT.format(install=install_extra("dap", "debugpy"))  # looked up where it is shown only
        return super().format_help()


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    parser = _Parser(prog="meshrt dap", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="the program")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--port", type=_port, metavar="PORT", help=f"of the loopback interface ({DEFAULT_PORT}; 0: any)")
    where.add_argument("--socket", type=Path, metavar="PATH", help="a unix socket instead, for this user alone")
    where.add_argument(
        "--stdio",
        action="store_true",
        help="for an IDE that starts it: the protocol on standard input and output, no port and no token",
    )
    parser.add_argument(
        "--write-launch-json",
        nargs="?",
        const=Path("."),
        type=Path,
        metavar="FOLDER",
        help="write the entry 'meshrt' into FOLDER/.vscode/launch.json (of this folder)",
    )
    parser.add_argument(
        "--no-serve",
        action="store_true",
        help="only show, or write, the entry: the program, or another meshrt dap, listens at PORT",
    )
    given = parser.parse_args(arguments)
    return run_command("meshrt dap", lambda: _run(given))


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")
    return int(text)


def _run(given: argparse.Namespace) -> int:
    if given.stdio:
        return _run_stdio(given)
    if given.socket and (given.no_serve or given.write_launch_json):
        raise UsageError("launch.json names a port; a unix socket has no entry there")
    from meshrt.debug.dap.router import serving  # start-up: a process that an IDE starts for a rank needs none of it

    if given.no_serve:
        serving.show_entry(given.run, given.port, given.write_launch_json)
        return ExitCode.OK
    return serving.serve(given.run, given.port, given.socket, given.write_launch_json)


def _run_stdio(given: argparse.Namespace) -> int:
    if given.socket or given.port is not None:
        raise UsageError("--stdio needs no --port and no --socket: an IDE starts it, and speaks to it through pipes")
    if given.no_serve or given.write_launch_json:
        if given.run:
            raise UsageError('the entry is for any program; where several run, "meshRun" in it names one')
        from meshrt.debug.dap.router import serving  # start-up: as above

        serving.show_adapter_entry(given.write_launch_json)
        return ExitCode.OK
    if not (_is_pipe(0) and (_is_pipe(1) or os.isatty(1))):
        raise UsageError(
            "an IDE starts meshrt dap --stdio, with pipes as standard input and output; "
            "meshrt dap --stdio --write-launch-json tells VS Code how"
        )
    return asyncio.run(serve_stdio(given.run))


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # it is closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
