"""``timeline``: when endpoints run, as a file for Perfetto."""

from __future__ import annotations

from pathlib import Path

from meshrt.commandline.command import AnyCommand, Argument, Command, Group, Offer, Option, ranks, run
from meshrt.commandline.numbers import duration

__all__ = ["COMMAND"]

COMMAND: AnyCommand = Command(
    "timeline",
    "record when endpoints run on all ranks, for Perfetto",
    group=Group.LOOK,
    arguments=(
        Argument("out", required=True, metavar="OUT.json", help="the file to write", convert=Path),
        run(),
        ranks(),
    ),
    options=(
        Option("--seconds", "how long (10); Ctrl-C and SIGTERM end it, too", "", "S", default=10.0, convert=duration),
        Option("--force", "overwrite a file that meshrt has not written"),
    ),
    details=(
        "The file has trace events: https://ui.perfetto.dev opens it, as does chrome://tracing. Each rank is a\n"
        "process there, each run of an endpoint a bar; arrows lead from callers to what they have called. The program\n"
        "is not stopped, and has no costs before and afterwards."
    ),
    main="meshrt.timeline.command:show",
    offer=Offer.SHELL,
)
