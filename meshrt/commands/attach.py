"""``attach``: pdb of one stopped rank."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Option, Outcome
from meshrt.debug.operations import Attach
from meshrt.debug.prompt.context import Prompt, plain

__all__ = ["COMMAND"]


def _attach(prompt: Prompt, arguments: Arguments) -> Outcome:
    snapshot = prompt.client.ask(Attach(**arguments))
    prompt.attach(snapshot)
    return Outcome(data={"session": plain(snapshot)})


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
        "There `q` asks before it aborts the endpoint, and Ctrl-C returns here without touching the rank."
    ),
    record={
        "session": "the row of the rank as in `list`, and `prompt`, `text` (what it wrote last), `reason`, `code`",
    },
)
