"""``run``: a script on several ranks of this machine, or under a launcher that gets a report of its crashes."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Argument, Command, Group, Kind, Offer, Option
from meshrt.commandline.numbers import number
from meshrt.errors import UsageError

__all__ = ["COMMAND"]


def _ranks(text: str) -> int | str:
    if text in ("auto", "cpu", "gpu"):
        return text
    try:
        return number("ranks", 1)(text)
    except UsageError as error:
        raise UsageError(f"{error}, auto, cpu or gpu") from None


def _nodes(text: str) -> str:
    if text not in ("1", "1:1"):
        raise UsageError(
            f"{text!r}: meshrt run starts ranks on this machine only; for several nodes, run it below a launcher: "
            f"torchrun --nnodes {text} ... -m meshrt run SCRIPT, or srun or mpirun"
        )
    return text


COMMAND: AnyCommand = Command(
    "run",
    "run a script on several ranks of this machine, or under a launcher and report its crashes to it",
    group=Group.PROGRAMS,
    arguments=(Argument("words", Kind.WORDS, required=True, metavar="SCRIPT|-m MODULE [ARGUMENT ...]"),),
    options=(
        Option(
            "-n, --nproc-per-node, --nproc_per_node",
            "number of ranks; `cpu`, `gpu`: one per processor or GPU; `auto`: gpu if there are GPUs, else cpu",
            "",
            "N",
            convert=_ranks,
        ),
        Option("--mesh", "the dimensions of the ranks and their sizes, such as dp=2,tp=4", "", "DIMS", default=""),
        Option(
            "--max-restarts, --max_restarts",
            "how often all ranks are restarted after a failure (0)",
            "",
            "N",
            default=0,
            convert=number("restarts"),
        ),
        Option("--local_rank", "passed on to the script; set by deepspeed", "", "N", default=""),
        Option("--nnodes", "accepted for compatibility with torchrun; must be 1", "", "N", convert=_nodes),
        Option("--standalone", "accepted for compatibility with torchrun: on this machine only, which is the default"),
    ),
    details=(
        "With -n or --mesh, all ranks are on this machine, as with torchrun --standalone:\n"
        "  meshrt run -n 8 train.py --lr 3e-4\n"
        "  meshrt run --mesh dp=2,tp=4 -m pkg.train\n"
        "The script is run unchanged, with the variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...). Its ranks\n"
        "are those of the actor `main`: cast main ranks(dp=0) p loss. The first rank that fails ends the others.\n"
        "Below a launcher that starts every rank, on one host or many:\n"
        "  torchrun --nproc-per-node 8 -m meshrt run train.py\n"
        "  srun --ntasks-per-node=8 meshrt run train.py\n"
        "The script keeps its output, signals and exit status. If a signal ends it, as in a crash, the launcher\n"
        "gets a report: the stack, and whether the kernel has run out of memory. Without a launcher the\n"
        "script is the only rank; a script that imports meshrt runs as with `python -u`."
    ),
    main="meshrt.spmd.run:show",
    offer=Offer.SHELL,
)
