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
    "turn running processes of Python 3.14 or newer into ranks of a program, without a change to their code",
    group=Group.PROGRAMS,
    arguments=(Argument("pids", required=True, metavar="PID", many=True, convert=pid),),
    options=(
        Option("--name", "what they are shown as, an actor (main)", metavar="NAME", default="main"),
        Option("--mesh", "the dimensions of the ranks and their sizes, such as dp=2,tp=4", metavar="DIMS", default=""),
        Option(
            "--timeout", "wait so long for a process that is in C code (5)", metavar="S", default=5.0, convert=seconds
        ),
    ),
    details=(
        "They are the ranks 0, 1, ... of one program, in this order. Each does what meshrt.join() does, on its main\n"
        "thread, as soon as that runs Python code; then every command sees it. It stays a child of the process that\n"
        "has started it. One that is in C code for longer than S seconds joins when it comes back."
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
        Argument("rank", Kind.RANK, "a number as in the listing, or coordinates such as hosts=3,gpus=1", required=True),
    ),
    options=(Option("--steal", "take it from another terminal"),),
    aliases=("a",),
    stays=True,
    details=(
        "What the rank wrote last is shown again, unless it was an answer to another terminal's `p` or `cast`. Then\n"
        "every line is a pdb command of that rank, until `detach`.\n"
        "There `q` asks before it aborts the endpoint, and Ctrl-C cancels the line that runs; again: it returns here."
    ),
    record={"session": "the row of the rank as in `list`, and `prompt`, `text` (its latest output), `reason`, `code`"},
    processes=_PROCESSES,
)
