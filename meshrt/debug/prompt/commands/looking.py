"""Terminal side: commands that only show and change nothing."""

from __future__ import annotations

from meshrt.debug.prompt.answers import Answers
from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.words import Words, parse_nothing
from meshrt.debug.prompt.tables import listing, status
from meshrt.inspect.operations import ListRanks, ReadStatus, Where
from meshrt.inspect.shortening import LINES
from meshrt.inspect.text import render_stacks
from meshrt.selection import STATE_WORDS
from meshrt.show.table import columns

__all__ = ["COMMANDS", "reference", "told"]


def told(answers: Answers, arguments: Arguments, *, late: str = "", again: bool = True) -> Outcome:
    """Return the outcome of a job: the answers of ranks, and the ranks that have not answered.

    Args:
        arguments: Of the command; ``diff`` and ``verbose`` say how answers are shown.
        late: What happens to the ranks that have not answered; "": they are not named.
        again: The command can be repeated to see long answers in full, so they are shortened.
    """
    against = arguments.get("diff")
    every = bool(arguments.get("verbose", True))  # commands without -v show every answer
    text = answers.text(every=every, against=against, most=LINES if again and not every else None)
    if answers.unanswered and (late or answers.lost):
        text += ("\n" if text else "") + f"{answers.pending()}: {'the program is gone' if answers.lost else late}"
    failed = answers.ranks("gone", "silent", "refused", "held", "busy", "blocked") or answers.errors()
    # A rank that had to be stopped and is stopped already counts as reached.
    reached = bool(answers.sent) or bool(answers.ranks("standing"))
    return Outcome(text, answers.data(), ok=reached and answers.done and not failed)


def reference(words: Words, options: dict[str, str]) -> int | None:
    """Return the rank of ``--diff``; None without the option. Raises UsageError: it is not a number."""
    return words.number(options["--diff"], "a rank") if "--diff" in options else None


def _parse_list(words: Words) -> Arguments:
    options = words.options({"-v": "", "--wide": ""})
    word = "" if words.at_ranks() else words.word()
    state = word if word in STATE_WORDS or word == "all" else ""
    # A word that is not a state is an actor.
    actor = word if not state else words.actor(optional=True)
    ranks = words.ranks(optional=True)
    words.end()
    return {
        "state": state or ("all" if actor or ranks else "stopped"),
        "actor": actor,
        "ranks": ranks,
        "verbose": "-v" in options,
        "wide": "--wide" in options,
    }


def _list(prompt: Prompt, arguments: Arguments) -> Outcome:
    state = arguments["state"]
    body = prompt.client.ask("inspect.list", state=state, actor=arguments["actor"], ranks=arguments["ranks"])
    fold, width = not arguments["verbose"], columns(wide=arguments["wide"])
    listed = ListRanks.read_answer(body)
    text = listing(listed.rows, state=state, fold=fold, left_out=listed.left_out, width=width)
    return Outcome(text, {"rows": body["rows"], "left_out": body["left_out"]})


def _status(prompt: Prompt, arguments: Arguments) -> Outcome:
    body = prompt.client.ask("debug.status", hosts=True)
    return Outcome(status(ReadStatus.read_answer(body), body["terminals"], body["own"]), body)


def _parse_where(words: Words) -> Arguments:
    verbose = bool(words.options({"-v": ""}))
    arguments = {"actor": words.actor(optional=True), "ranks": words.ranks(optional=True), "verbose": verbose}
    words.end()
    return arguments


def _where(prompt: Prompt, arguments: Arguments) -> Outcome:
    body = prompt.client.ask("inspect.where", **arguments)
    return Outcome(render_stacks(Where.read_answer(body)), body)


def _parse_logs(words: Words) -> Arguments:
    options = words.options({"-n": "a number of lines", "--diff": "a rank"})
    arguments = {
        "actor": words.actor(),
        "ranks": words.ranks(optional=True),
        "lines": words.number(options["-n"], "lines") if "-n" in options else None,
        "diff": reference(words, options),
    }
    words.end()
    return arguments


def _logs(prompt: Prompt, arguments: Arguments) -> Outcome:
    asked = {name: arguments[name] for name in ("actor", "ranks", "lines")}
    return told(prompt.collect(prompt.client.ask("debug.logs", **asked)), arguments)


COMMANDS = (
    Command(
        "list",
        "list [-v] [--wide] [STATE] [ACTOR [ranks(...)]]",
        "show the stopped ranks, or those in another state",
        _parse_list,
        _list,
        aliases=("l",),
        details=(
            "One row per rank: its number in the mesh it was spawned on, the coordinates of the view through which it\n"
            "was called, host, and where it is. STATE is stopped (without one), running, blocked, post-mortem,\n"
            "not-answering, dead or all. With an ACTOR, all its ranks. Above 32 rows equal ones share a row; -v shows\n"
            "every one, --wide all columns, however narrow the terminal is. No rank is asked: this is what is known,\n"
            "and since when."
        ),
        takes=("state", "actor", "ranks"),
    ),
    Command(
        "status",
        "status",
        "say what the whole program does, in a few lines",
        parse_nothing,
        _status,
    ),
    Command(
        "where",
        "where [-v] [ACTOR] [ranks(...)]",
        "show the stacks of all ranks, stopped or running, merged into one tree",
        _parse_where,
        _where,
        aliases=("w", "bt"),
        details=(
            "Equal stacks are shown once, with how many ranks have them and which; the largest class first. Each says\n"
            "whether it is blocked, and for how long, or running. Nobody is interrupted. A rank whose GIL is held by\n"
            "C code is asked by a signal that faulthandler serves, and its row says so. -v shows the runtime's\n"
            "stack frames too."
        ),
        takes=("actor", "ranks"),
    ),
    Command(
        "logs",
        "logs [-n LINES] [--diff RANK] ACTOR [ranks(...)]",
        "show the last lines that ranks have printed, equal ones once",
        _parse_logs,
        _logs,
        aliases=("log",),
        details="Ten lines of each, unless -n says otherwise. --diff shows what differs from one rank's.",
        takes=("actor", "ranks"),
    ),
)
