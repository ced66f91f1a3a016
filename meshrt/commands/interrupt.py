"""``interrupt``: running ranks stop where they are."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Outcome, ranks
from meshrt.debug.operations import Interrupt
from meshrt.debug.prompt.context import ANSWERS, Prompt, told

__all__ = ["COMMAND"]

_NOTHING = "no rank was stopped; break FILE:LINE stops a rank when it reaches that line"


def _interrupt(prompt: Prompt, arguments: Arguments) -> Outcome:
    answers = prompt.collect(prompt.client.ask(Interrupt(**arguments)))
    outcome = told(answers, arguments, late="their stop will be announced")
    if answers.ranks("idle") and len(answers.ranks("idle")) == answers.sent:
        return Outcome(f"{outcome.text}\n{_NOTHING}", outcome.data, ok=bool(answers.ranks("stopped")))
    return outcome


COMMAND = Command(
    "interrupt",
    "stop running ranks where they are",
    _interrupt,
    Group.CONTROL,
    arguments=(Argument("actor", Kind.ACTOR, required=True), ranks()),
    aliases=("int",),
    details=(
        "In a Python loop, in recv, a lock, a queue, sleep, a call to another actor: the rank stops with your own\n"
        "stack frame on top, and is then at an ordinary pdb prompt; `c` resumes the blocked call. A rank that is\n"
        "in C code stops when that code returns; the answer shows where it is now. A rank that waits for messages is\n"
        "not stopped; if all ranks wait for messages, the command fails. ACTOR/THREAD names a thread of your own code\n"
        "(on Python 3.12 and later). On Python 3.11 only the first actor of a rank can be stopped."
    ),
    record=ANSWERS,
)
