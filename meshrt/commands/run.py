"""``run``: a script whose launcher is told of its crash."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Argument, Command, Group, Kind, Offer

__all__ = ["COMMAND"]

COMMAND: AnyCommand = Command(
    "run",
    "run a script for a launcher, such as torchrun, that is told of its crash too",
    group=Group.PROGRAMS,
    arguments=(Argument("words", Kind.WORDS, required=True, metavar="SCRIPT|-m MODULE [ARGUMENT ...]"),),
    details=(
        "As `python -u` does:\n"
        "  torchrun --nproc-per-node 2 --no-python meshrt run train.py\n"
        "If the script is killed by a signal, as in a crash, the launcher is told so, with the stack from the\n"
        "script's first mesh (or `@meshrt.record`) on; and whether the kernel has run out of memory."
    ),
    main="meshrt.failure.run:show",
    offer=Offer.SHELL,
)
