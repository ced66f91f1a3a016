"""``tunnel``: the other end of ``--via``."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Command, Group, Offer

__all__ = ["COMMAND"]

COMMAND: AnyCommand = Command(
    "tunnel",
    "the other end of --via, on the machine of the programs; --via starts it, not a user",
    group=Group.BASIC,
    details="Speaks by standard input and output, and opens no port.",
    main="meshrt.cli.tunnel:show",
    offer=Offer.SHELL,
)
