"""Terminal side: commands that ask many ranks for values, or send them a line of pdb."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.looking import reference, told
from meshrt.debug.prompt.commands.words import Words
from meshrt.debug.prompt.terminal import Woken
from meshrt.debug.protocol import QUITS
from meshrt.errors import UsageError

__all__ = ["COMMANDS"]

_OPTIONS = {"-v": "", "--diff": "a rank"}
_LATE = "they are left to themselves, their next stop will be announced"
_LATE_VALUE = "they are left to themselves"


def _parse_print(words: Words) -> Arguments:
    options = words.options(_OPTIONS)
    arguments = {
        "actor": words.actor(optional=words.at_ranks()),
        "ranks": words.ranks(optional=True),
        "expression": words.rest(),
        "verbose": "-v" in options,
        "diff": reference(words, options),
    }
    expression = str(arguments["expression"])
    if not expression:
        raise UsageError(f"the expression is missing; {words.usage()}")
    slip = _slip(expression, words.usage(), ranks=bool(arguments["ranks"]))
    if slip and not _is_expression(expression):  # `1 in xs` and `rank(0) in group` are valid expressions
        raise UsageError(slip)
    return arguments


def _slip(expression: str, usage: str, *, ranks: bool) -> str:
    """Return a hint if ``expression`` looks like misplaced options or ranks, or "".

    Args:
        ranks: The line names ranks already.
    """
    if re.match(r"-(-diff|v)\b", expression):
        return f"options stand directly behind the command; {usage}"
    if not ranks and re.match(r"\d+\s+[\w(]", expression):
        return f"ranks are written ranks({expression.split()[0]}); {usage}"
    if not ranks and re.match(r"rank\s*\([^)]*\)\s*[\w\"'([{]", expression):
        return f"did you mean ranks{expression[4:]}?"
    return ""


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return False
    return True


def _printer(command: str) -> Callable[[Prompt, Arguments], Outcome]:
    def run(prompt: Prompt, arguments: Arguments) -> Outcome:
        asked = {name: arguments[name] for name in ("actor", "ranks", "expression")}
        answers = prompt.collect(prompt.client.ask("debug.print", command=command, **asked))
        whole = {"verbose": True} if command == "source" else {}  # source is of use only as a whole
        return told(answers, {**arguments, **whole}, late=_LATE_VALUE)

    return run


def _parse_cast(words: Words) -> Arguments:
    options = words.options(_OPTIONS)
    arguments = {
        "actor": words.actor(optional=words.at_ranks()),
        "ranks": words.ranks(),
        "line": words.rest(),
        "verbose": "-v" in options,
        "diff": reference(words, options),
    }
    if not arguments["line"]:
        raise UsageError(f"the pdb command is missing; {words.usage()}")
    return arguments


def _cast(prompt: Prompt, arguments: Arguments) -> Outcome:
    actor, ranks, line = arguments["actor"], arguments["ranks"], arguments["line"]
    if line in QUITS and prompt.terminal.interactive:
        try:
            answer = prompt.terminal.read(
                f"abort the endpoint {f'of {actor} ' if actor else ''}on {ranks}? the callers get errors [y/N] "
            )
        except (EOFError, Woken):
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            return Outcome("not aborted")
    answers = prompt.collect(prompt.client.ask("debug.cast", actor=actor, ranks=ranks, line=line))
    # The command has run: its output cannot be asked for again, so it is not shortened.
    return told(answers, arguments, late=_LATE, again=False)


def _print_command(name: str, summary: str, details: str = "") -> Command:
    usage = f"{name} [-v] [--diff RANK] ACTOR [ranks(...)] EXPRESSION"
    return Command(name, usage, summary, _parse_print, _printer(name), details=details, takes=("actor", "ranks"))


COMMANDS = (
    _print_command(
        "p",
        "print an expression on ranks, stopped or running",
        "A stopped rank evaluates it in the stack frame it stands in. A running one is not stopped: there `self` is\n"
        "the actor and the names are those of its module. Equal values are shown once, with their ranks. Many\n"
        "numbers are summed up (min, median, max, outliers; -v shows every one), arrays and tensors are described\n"
        "by shape, dtype, min, max, mean and the count of NaN. Of a long value the first lines are shown;\n"
        "-v shows all. --diff shows what differs from one rank. ACTOR may be left away before ranks(...), if there\n"
        "is only one.\n"
        "  p trainer self.loss          p --diff 0 trainer ranks(hosts=1) self.config",
    ),
    _print_command("pp", "the same, pretty-printed"),
    _print_command("whatis", "print the type of an expression on ranks"),
    _print_command("source", "show the source of an object on ranks"),
    Command(
        "cast",
        "cast [-v] [--diff RANK] ACTOR ranks(...) COMMAND",
        "give a pdb command to a set of stopped ranks",
        _parse_cast,
        _cast,
        details=(
            "Answers are grouped: equal ones once, with their ranks. Ranks that are not stopped are named. A stepping\n"
            "command is waited for until all stand again, so that many ranks step as one. ACTOR may be left away if\n"
            "there is only one.\n"
            "  cast debugee ranks(3) p x            cast debugee ranks(0:8, 12) n\n"
            "  cast debugee ranks(hosts=0) p x      cast debugee ranks(hosts=1:3, gpus=(0,2)) c\n"
            "  cast debugee ranks(all) p x          cast debugee ranks(stopped & !hosts=2) bt\n"
            "A rank that has not answered after a while is named and left to itself; Ctrl-C does that at once."
        ),
        takes=("actor", "ranks"),
    ),
)
