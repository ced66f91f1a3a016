"""``top``: the ranks of a program on a screen."""

from __future__ import annotations

import ipaddress

from meshrt.commandline.command import AnyCommand, Command, Group, Offer, Option, Values, ranks, run
from meshrt.commandline.numbers import duration, port
from meshrt.errors import UsageError
from meshrt.show.records import TOP
from meshrt.top.columns import COLUMNS

__all__ = ["COMMAND"]

#: Seconds between two looks.
_EVERY = 1.0
_HOST, _PORT = "localhost", 8000
_NAMES = tuple(each.name for each in COLUMNS)


def _check(given: Values) -> None:
    """Raise UsageError for options that cannot be combined."""
    if given["json"] and not given["once"]:
        raise UsageError("--json writes one object and needs --once")
    if given["once"] and given["serve"]:
        raise UsageError("--once cannot be combined with --serve")
    if not given["serve"] and (given["host"] is not None or given["port"] is not None):
        raise UsageError("--host and --port are for a browser and need --serve")
    if given["host"] is not None and _all_interfaces(given["host"]):
        raise UsageError(f"--host {given['host']!r}: expected one address of this machine, not all of them")
    if given["port"] is not None and not 0 < given["port"] < 65536:
        raise UsageError(f"--port must be a number from 1 to 65535, not {given['port']}")
    if given["serve"]:
        given.update(host=given["host"] or _HOST, port=given["port"] or _PORT)


def _all_interfaces(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return not host


COMMAND: AnyCommand = Command(
    "top",
    "show the ranks of a program on a screen that is kept up to date",
    group=Group.LOOK,
    arguments=(run("the program, if several run: its id, its pid or its run directory"), ranks()),
    options=(
        Option("--actor", "only ranks of this actor", metavar="ACTOR", default=""),
        Option("--sort", f"one of {', '.join(_NAMES)} (rank)", metavar="COLUMN", default="rank", choices=_NAMES),
        Option("-r, --reverse", "reverse the order"),
        Option("--every", f"seconds between updates ({_EVERY:g})", metavar="SECONDS", default=_EVERY, convert=duration),
        Option("--once", "print one table after that time and exit (textual is not needed)"),
        Option("--json", "with --once: one JSON object (docs/json.md)"),
        Option("--serve", "in a browser: every process that can reach the port and has the address sees the program"),
        Option("--host", f"with --serve: address to listen at ({_HOST}: this machine only)", metavar="ADDRESS"),
        Option("--port", f"with --serve: port to listen at ({_PORT})", metavar="PORT", convert=port),
    ),
    details=(
        "Shows state, processor, memory, calls and waiting messages. On the screen, Enter shows the stacks, variables\n"
        "and log of a rank, / sets a selection of ranks, ? shows all keys. Ranks that are stopped, hang, or hold the\n"
        "GIL are shown like all others: host agents read their figures from /proc. Does not stop or change ranks."
    ),
    main="meshrt.top.command:show",
    schema=TOP,
    check=_check,
    offer=Offer.SHELL,
)
