"""``attach``: pdb of one stopped rank."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Argument, Arguments, Command, Group, Kind, Offer, Option, Outcome
from meshrt.commandline.numbers import pid, seconds
from meshrt.debug.operations import Attach
from meshrt.debug.prompt.context import Prompt, plain

__all__ = ["COMMAND"]


def _attach(prompt: Prompt, arguments: Arguments) -> Outcome:
    snapshot = prompt.client.ask(Attach(**arguments))
    prompt.attach(snapshot)
    return Outcome(data={"session": plain(snapshot)})


_PROCESSES: AnyCommand = Command(
    "attach",
    "turn running processes (Python 3.14 or newer) into ranks of a program, without changing their code",
    group=Group.PROGRAMS,
    arguments=(Argument("pids", required=True, metavar="PID", many=True, convert=pid),),
    options=(
        Option("--name", "actor name of these processes (main)", metavar="NAME", default="main"),
        Option("--mesh", "the dimensions of the ranks and their sizes, such as dp=2,tp=4", metavar="DIMS", default=""),
        Option("--timeout", "seconds to wait for a process in C code (5)", "", "SECONDS", default=5.0, convert=seconds),
    ),
    details=(
        "The processes become the ranks 0, 1, ... of one program, in this order. Each process joins, as by\n"
        "meshrt.join(), as soon as its main thread runs Python code; then all commands work with it. Its parent\n"
        "stays the same. A process that is in C code for longer than SECONDS joins when the C call returns."
    ),
    main="meshrt.spmd.attach:show",
    offer=Offer.SHELL,
)

COMMAND = Command(
    "attach",
    "work with pdb on one stopped rank",
    _attach,
    Group.CONTROL,
    arguments=(
        Argument("actor", Kind.ACTOR, required=True),
        Argument("rank", Kind.RANK, "a number as in `list`, or coordinates such as hosts=3,gpus=1", required=True),
    ),
    options=(Option("--steal", "take the rank over from another terminal"),),
    aliases=("a",),
    stays=True,
    details=(
        "Shows the last output of the rank, unless it was an answer to `p` or `cast` of another terminal. Then every\n"
        "line is a pdb command of that rank, until `detach`. `q` asks for confirmation and aborts the endpoint.\n"
        "Ctrl-C cancels the line that runs; a second Ctrl-C returns to this prompt."
    ),
    record={"session": "the row of the rank as in `list`, and `prompt`, `text` (its latest output), `reason`, `code`"},
    processes=_PROCESSES,
)
