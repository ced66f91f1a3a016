"""Terminal side: commands that show memory: of ranks, and of what they hold."""

from __future__ import annotations

from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.words import Words
from meshrt.debug.prompt.text import clean
from meshrt.errors import UsageError
from meshrt.memory.api import ask
from meshrt.memory.groups import OF_REFERENCES, OF_VARIABLES
from meshrt.memory.look import GROUPINGS, ORDERS, Look
from meshrt.memory.root import MILLISECONDS
from meshrt.memory.table import render

__all__ = ["COMMANDS"]

#: Growth is seen by `meshrt memory --watch` and ``--diff``.
_ORDERS = tuple(order for order in ORDERS if order != "growth")
_OPTIONS = {"-n": "a number of rows", "--sort": "an order", "--by": "a grouping", "-r": ""}
#: Variables that are shown, unless somebody says otherwise: one screen.
_MOST = 20


def _parse(words: Words, *, variables: bool) -> Arguments:
    options = words.options({**_OPTIONS, **({"--exact": ""} if variables else {})})
    by, sort = options.get("--by", ""), options.get("--sort", "size")
    if by in OF_VARIABLES and not variables:
        raise UsageError(f"a grouping by {by} is of variables: vars --by {by}")
    if sort not in _ORDERS:
        raise UsageError(f"no order {sort!r}; expected one of {', '.join(_ORDERS)}")
    arguments = {
        "by": by,
        "sort": sort,
        "reverse": "-r" in options,
        "most": words.number(options["-n"], "rows") if "-n" in options else _MOST if variables else None,
        "variables": variables,
        "exact": "--exact" in options,
        "actor": words.actor(optional=True),
        "ranks": words.ranks(optional=True),
    }
    words.end()
    _look(arguments)
    return arguments


def _look(arguments: Arguments) -> Look:
    return Look(
        arguments["by"],
        arguments["sort"],
        arguments["reverse"],
        arguments["most"],
        ranks=not arguments["variables"],
    )


def _show(prompt: Prompt, arguments: Arguments) -> Outcome:
    document = ask(
        prompt.client,
        actor=arguments["actor"],
        ranks=arguments["ranks"],
        variables=arguments["variables"],
        frames=arguments["variables"],
        milliseconds=None if arguments["exact"] else MILLISECONDS,
    )
    return Outcome(clean(render(document, _look(arguments))), {"document": document})


_GROUPINGS = ", ".join(each for each in GROUPINGS if each != OF_REFERENCES)
_WORDS = f"ORDER is one of {', '.join(_ORDERS)}; WHAT is one of {_GROUPINGS}."

COMMANDS = (
    Command(
        "memory",
        "memory [-n N] [-r] [--sort ORDER] [--by WHAT] [ACTOR] [ranks(...)]",
        "show how much memory ranks have, stopped or running, the largest first",
        lambda words: _parse(words, variables=False),
        _show,
        aliases=("mem",),
        details=(
            "Read by the host agents, so a rank that hangs, was stopped by a signal or holds the GIL has its row too.\n"
            "RSS is all that a rank has in memory, PSS counts a page that n processes have as 1/n, SHARED is what\n"
            "others have too, HEAP belongs to no file, FREE is kept by malloc though nobody uses it. -n shows the N\n"
            f"largest, -r turns the order round.\n{_WORDS}"
        ),
        takes=("actor", "ranks"),
    ),
    Command(
        "vars",
        "vars [-n N] [-r] [--sort ORDER] [--by WHAT] [--exact] [ACTOR] [ranks(...)]",
        "show which variables hold memory, those of stopped stack frames included",
        lambda words: _parse(words, variables=True),
        _show,
        details=(
            "Attributes of actors, of their classes, globals of their modules, and the local variables of ranks that\n"
            "are stopped. = is exact, >= was counted until the time was over (200 ms per rank; --exact counts to the\n"
            "end), ~ estimates the whole. Memory that several variables reach is told for each of them, and once in\n"
            f"the totals. No code of yours is run. {_MOST} rows, unless -n says otherwise.\n{_WORDS}"
        ),
        takes=("actor", "ranks"),
    ),
)
