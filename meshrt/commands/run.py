"""``run``: a script on several ranks of this machine, or one whose launcher is told of its crash."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Argument, Command, Group, Kind, Offer, Option
from meshrt.errors import UsageError

__all__ = ["COMMAND"]


def _ranks(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise UsageError(f"{text!r} is not a number of ranks; expected 1 or more")
    return int(text)


def _restarts(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a number of restarts; expected 0 or more")
    return int(text)


COMMAND: AnyCommand = Command(
    "run",
    "run a script on several ranks of this machine, or as one rank of a launcher, such as torchrun",
    group=Group.PROGRAMS,
    arguments=(Argument("words", Kind.WORDS, required=True, metavar="SCRIPT|-m MODULE [ARGUMENT ...]"),),
    options=(
        Option("-n, --nproc-per-node", "run the script on so many ranks", "", "N", convert=_ranks),
        Option("--mesh", "the dimensions of the ranks and their sizes, such as dp=2,tp=4", "", "DIMS", default=""),
        Option(
            "--max-restarts",
            "start all ranks again after a failure, so many times (0)",
            "",
            "N",
            default=0,
            convert=_restarts,
        ),
        Option("--local_rank", "passed on to the script; deepspeed says it", "", "N", default=""),
        Option("--standalone", "on this machine alone, which is the default; for command lines of torchrun"),
    ),
    details=(
        "With -n or --mesh all ranks are on this machine, in place of torchrun --standalone:\n"
        "  meshrt run -n 8 train.py --lr 3e-4\n"
        "  meshrt run --mesh dp=2,tp=4 -m pkg.train\n"
        "The script is run unchanged, with the variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...). Its ranks\n"
        "are those of the actor `main`: cast main ranks(dp=0) p loss. The first rank that fails ends the others.\n"
        "Below a launcher that starts every rank, on one host or many:\n"
        "  torchrun --nproc-per-node 8 -m meshrt run train.py\n"
        "  srun --ntasks-per-node=8 meshrt run train.py\n"
        "The script keeps its output, signals and exit status. If it is killed by a signal, as in a crash, the\n"
        "launcher is told so, with the stack, and whether the kernel has run out of memory. Without a launcher the\n"
        "script runs as `python -u` runs it."
    ),
    main="meshrt.spmd.run:show",
    offer=Offer.SHELL,
)
