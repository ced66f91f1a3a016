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
            "show each rank: coordinates, host, state and its age, place in the code, pid, memory in RAM (shared "
            "memory included), pids of child processes. Above 32 rows, equal rows are merged; -vv shows each of them",
            counts=True,
            default=0,
        ),
        Option(
            "--wide",
            "show all columns. Without this option, a narrow terminal does not show the least important columns, and "
            "they are named below the table; a pipe gets all columns",
        ),
        Option("--timeout", "seconds to wait for silent programs (3)", "", "SECONDS", default=3.0, convert=duration),
        Option("--json", "one JSON object (docs/json.md)"),
    ),
    details=(
        "Shows id, pid, age, ranks by state, meshes and actors, and command of each program. -v shows the ranks as\n"
        "well, with pid and memory; above 32 rows, equal rows are merged. A program that does not answer is still\n"
        "listed. Programs that failed within a day are listed below; meshrt postmortem shows why. Does not stop or\n"
        "change ranks."
    ),
    main="meshrt.debug.shell.ps:show",
    schema=PS,
    offer=Offer.SHELL,
)
