"""``ps``: the running programs of this user."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Command, Group, Offer, Option, ranks, run
from meshrt.commandline.numbers import duration
from meshrt.show.records import PS

__all__ = ["COMMAND"]

COMMAND: AnyCommand = Command(
    "ps",
    "show the running programs, and what their ranks do",
    group=Group.PROGRAMS,
    arguments=(
        run("this program only: its id, its pid or its run directory"),
        ranks("only these ranks; programs without such ranks are left out"),
    ),
    options=(
        Option(
            "-v, --verbose",
            "every rank: coordinates, host, state and since when, place in the code, pid, memory in RAM (shared memory "
            "included), pids of its child processes. Above 32 rows, equal rows are merged; -vv shows each of them",
            counts=True,
            default=0,
        ),
        Option(
            "--wide",
            "all columns. Without this option, a narrow terminal does not show the least important columns, and they "
            "are named below the table; a pipe gets all columns",
        ),
        Option("--timeout", "seconds to wait for silent programs (3)", "", "S", default=3.0, convert=duration),
        Option("--json", "one JSON object (docs/json.md)"),
    ),
    details=(
        "Of each program: id, pid, age, ranks by state, meshes and actors, command. -v shows the ranks as well, with\n"
        "pid and memory; above 32, equal ones share a row. A program that does not answer is named all the same.\n"
        "Programs that have failed lately are named below: meshrt postmortem shows why. No rank is stopped, or\n"
        "changed, by being looked at."
    ),
    main="meshrt.debug.shell.ps:show",
    schema=PS,
    offer=Offer.SHELL,
)
