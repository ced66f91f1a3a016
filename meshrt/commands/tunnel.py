"""``tunnel``: the other end of ``--via``."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Command, Group, Offer

__all__ = ["COMMAND"]

COMMAND: AnyCommand = Command(
    "tunnel",
    "the remote end of --via, on the machine of the programs; started by --via, not by a user",
    group=Group.BASIC,
    details="Communicates through standard input and output, and opens no port.",
    main="meshrt.cli.tunnel:show",
    offer=Offer.SHELL,
)
