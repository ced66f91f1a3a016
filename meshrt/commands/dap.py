"""``dap``: an IDE for all ranks."""

from __future__ import annotations

from pathlib import Path

from meshrt.commandline.command import AnyCommand, Command, Group, Offer, Option, run
from meshrt.commandline.numbers import port

__all__ = ["COMMAND"]


def _details() -> str:
    from meshrt.debug.dap.router.listening import DEFAULT_PORT  # start-up: for the help only
    from meshrt.show.installing import install_extra  # start-up: for the help only

    return (
        "Through a process that the IDE starts (--stdio), or through one port of this machine. VS Code, nvim-dap and\n"
        "other clients of the Debug Adapter Protocol attach with one launch configuration; --write-launch-json writes\n"
        "it, and with --stdio it is right for all programs to come. The ranks need debugpy, which is loaded in a rank\n"
        "when an IDE attaches to it. To install it for this Python:\n"
        f"  {install_extra('dap', 'debugpy')}\n"
        f"PORT is {DEFAULT_PORT}, unless it is given. It serves until the program ends, or Ctrl-C: ranks that are\n"
        "stopped in the IDE are resumed then."
    )


COMMAND: AnyCommand = Command(
    "dap",
    "let an IDE attach to all ranks of a program, through one port",
    group=Group.CONTROL,
    arguments=(run(),),
    options=(
        Option("--port", "of the loopback interface; 0: any", metavar="PORT", convert=port, excludes="at"),
        Option("--socket", "a unix socket instead, for this user alone", metavar="PATH", convert=Path, excludes="at"),
        Option(
            "--stdio",
            "for an IDE that starts it: the protocol on standard input and output, no port and no token",
            excludes="at",
        ),
        Option(
            "--write-launch-json",
            "write the entry 'meshrt' into FOLDER/.vscode/launch.json (of this folder)",
            metavar="FOLDER",
            const=Path("."),
            convert=Path,
        ),
        Option("--no-serve", "only show, or write, the entry: the program, or another meshrt dap, listens at PORT"),
    ),
    details=_details,
    main="meshrt.debug.dap.router.command:show",
    offer=Offer.SHELL,
)
