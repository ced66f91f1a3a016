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
        "The IDE connects through a process that it starts (--stdio), or through one port of this machine. VS Code,\n"
        "nvim-dap and other clients of the Debug Adapter Protocol need one launch configuration: --write-launch-json\n"
        "writes it, and with --stdio it is valid for all later programs. Ranks need debugpy, which a rank loads when\n"
        "an IDE attaches to the rank. To install debugpy for this Python:\n"
        f"  {install_extra('dap', 'debugpy')}\n"
        f"The default PORT is {DEFAULT_PORT}. The command serves until the program ends, or until Ctrl-C: then ranks\n"
        "that are stopped in the IDE are resumed."
    )


COMMAND: AnyCommand = Command(
    "dap",
    "let an IDE attach to all ranks of a program, through one port",
    group=Group.CONTROL,
    arguments=(run(),),
    options=(
        Option("--port", "port on 127.0.0.1 (0: any free port)", metavar="PORT", convert=port, excludes="at"),
        Option("--socket", "a unix socket instead, for this user only", metavar="PATH", convert=Path, excludes="at"),
        Option(
            "--stdio",
            "for an IDE that starts this command: standard input and output, no port and no token",
            excludes="at",
        ),
        Option(
            "--write-launch-json",
            "write the entry 'meshrt' into FOLDER/.vscode/launch.json (this folder)",
            metavar="FOLDER",
            const=Path("."),
            convert=Path,
        ),
        Option("--no-serve", "do not listen; only show or write the entry: another process listens at PORT"),
    ),
    details=_details,
    main="meshrt.debug.dap.router.command:show",
    offer=Offer.SHELL,
)
