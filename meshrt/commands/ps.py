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
        ranks("these only; programs that have none of them are left out"),
    ),
    options=(
        Option(
            "-v, --verbose",
            "every rank: coordinates, host, state and since when, where it is, pid, memory in RAM (what it shares with "
            "others included), pids of what it has started. Above 32 rows, equal ones are one, and -vv shows every one",
            counts=True,
            default=0,
        ),
        Option(
            "--wide",
            "all columns. Without it, the least important columns are left out where a terminal is too narrow, and "
            "named below the table; through a pipe everything is written",
        ),
        Option("--timeout", "wait so long for programs that are silent (3)", "", "S", default=3.0, convert=duration),
        Option("--json", "one object (docs/json.md)"),
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
