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
        Option(
            "--seconds",
            "length (10); Ctrl-C or SIGTERM ends the recording",
            "",
            "SECONDS",
            default=10.0,
            convert=duration,
        ),
        Option("--force", "overwrite a file that meshrt has not written"),
    ),
    details=(
        "The file has trace events: open it with https://ui.perfetto.dev or chrome://tracing. Each rank is shown as a\n"
        "process, each run of an endpoint as a bar; arrows connect a call to the run it started. The program is not\n"
        "stopped, and there is no overhead outside the recording."
    ),
    main="meshrt.timeline.command:show",
    offer=Offer.SHELL,
)
