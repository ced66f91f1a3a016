"""Terminal side: commands that stop ranks, resume them, or attach to one of them."""

from __future__ import annotations

import re

from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.looking import told
from meshrt.debug.prompt.commands.words import Words
from meshrt.debug.prompt.text import count_ranks
from meshrt.errors import UsageError

__all__ = ["COMMANDS"]

_NOTHING = "nothing was stopped; break FILE:LINE stops a rank when it comes there"


def _parse_attach(words: Words) -> Arguments:
    steal = bool(words.options({"--steal": ""}))
    actor, rank = words.actor(), words.rest()
    if not rank:
        raise UsageError(f"the {'actor' if actor.isdigit() else 'rank'} is missing; {words.usage()}")
    return {"actor": actor, "rank": rank, "steal": steal}


def _attach(prompt: Prompt, arguments: Arguments) -> Outcome:
    body = prompt.client.ask("debug.attach", **arguments)
    prompt.attach(body)
    return Outcome(data={"session": body})


def _parse_continue(words: Words) -> Arguments:
    arguments = {"actor": words.actor(optional=True), "ranks": words.ranks(optional=True)}
    words.end()
    if arguments["ranks"] and not arguments["actor"]:
        raise UsageError(f"ranks of which actor? {words.usage()}")
    return arguments


def _continue(prompt: Prompt, arguments: Arguments) -> Outcome:
    answers = prompt.collect(prompt.client.ask("debug.continue", **arguments))
    outcome = told(answers, arguments, late="they are left to themselves")
    if answers.sent or outcome.text:
        return outcome
    return Outcome("nothing is stopped", outcome.data)


def _parse_interrupt(words: Words) -> Arguments:
    arguments = {"actor": words.actor(), "ranks": words.ranks(optional=True)}
    words.end()
    return arguments


def _interrupt(prompt: Prompt, arguments: Arguments) -> Outcome:
    answers = prompt.collect(prompt.client.ask("debug.interrupt", **arguments))
    outcome = told(answers, arguments, late="their stop will be announced")
    if answers.ranks("idle") and len(answers.ranks("idle")) == answers.sent:
        return Outcome(f"{outcome.text}\n{_NOTHING}", outcome.data, ok=bool(answers.ranks("standing")))
    return outcome


def _parse_wait(words: Words) -> Arguments:
    actor, ranks = words.actor(), words.ranks(optional=True)
    seconds = words.word() or "60"
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", seconds):
        raise UsageError(f"{seconds!r} is no number of seconds; {words.usage()}")
    words.end()
    return {"actor": actor, "ranks": ranks, "seconds": float(seconds)}


def _wait(prompt: Prompt, arguments: Arguments) -> Outcome:
    seconds = arguments["seconds"]
    body = prompt.client.ask("debug.wait", timeout=seconds + 10, **arguments)
    if body["missing"]:
        return Outcome(f"not stopped within {seconds:g} s: {count_ranks(body['missing'])}", body, ok=False)
    return Outcome(f"stopped: {count_ranks(body['stopped'])}", body)


COMMANDS = (
    Command(
        "attach",
        "attach [--steal] ACTOR RANK",
        "work with pdb on one stopped rank",
        _parse_attach,
        _attach,
        aliases=("a",),
        details=(
            "RANK is a number as in the listing, or coordinates such as hosts=3,gpus=1. What the rank wrote last is\n"
            "shown again. Then every line is a pdb command of that rank, until `detach`. There `q` asks before it\n"
            "aborts the endpoint, and Ctrl-C returns here without touching the rank. --steal takes it from another\n"
            "terminal."
        ),
        takes=("actor", "rank"),
    ),
    Command(
        "continue",
        "continue [ACTOR [ranks(...)]]",
        "resume every stopped rank, or some",
        _parse_continue,
        _continue,
        aliases=("c",),
        details="Every rank goes on from where it stands and stops again at the next breakpoint, if there is one.",
        takes=("actor", "ranks"),
    ),
    Command(
        "interrupt",
        "interrupt ACTOR [ranks(...)]",
        "stop running ranks where they are",
        _parse_interrupt,
        _interrupt,
        aliases=("int",),
        details=(
            "In a Python loop, in recv, a lock, a queue, sleep, a call to another actor: the rank stops with your own\n"
            "stack frame on top, and is then at an ordinary pdb prompt; `c` resumes the blocked call. A rank that is\n"
            "in C code stops when that returns; where it is now is said. One that waits for messages is not stopped;\n"
            "if all do, that is an error. ACTOR/THREAD means a thread of your own (on Python 3.12 and later)."
        ),
        takes=("actor", "ranks"),
    ),
    Command(
        "wait",
        "wait ACTOR [ranks(...)] [SECONDS]",
        "wait until these ranks are stopped (60 seconds, unless said)",
        _parse_wait,
        _wait,
        details=(
            "Without ranks(...) all ranks of the actor are meant; without SECONDS 60. For scripts: the actor may be\n"
            "spawned later. Not all stopped in time is an error."
        ),
        takes=("actor", "ranks"),
    ),
)
