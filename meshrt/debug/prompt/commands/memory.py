"""Terminal side: commands that show the memory of ranks and of their variables."""

from __future__ import annotations

import re

from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.words import Words
from meshrt.errors import UsageError
from meshrt.memory.api import ask
from meshrt.memory.asked import MILLISECONDS
from meshrt.memory.groups import OF_REFERENCES, OF_VARIABLES
from meshrt.memory.look import GROUPINGS, ORDERS, Look
from meshrt.memory.table import render
from meshrt.show.table import columns

__all__ = ["COMMANDS"]

#: Without "growth": only `meshrt memory --watch` and ``--diff`` measure it.
_ORDERS = tuple(order for order in ORDERS if order != "growth")
_OPTIONS = {"-n": "a number of rows", "--sort": "an order", "--by": "a grouping", "-r": "", "--wide": ""}
#: Variables that are shown without ``-n``: one screen.
_MOST = 20


def _parse(words: Words, *, variables: bool) -> Arguments:
    options = words.options({**_OPTIONS, **({"--exact": ""} if variables else {})})
    by, sort = options.get("--by", ""), options.get("--sort", "size")
    if by in OF_VARIABLES and not variables:
        raise UsageError(f"a grouping by {by} is of variables: vars --by {by}")
    if by == OF_REFERENCES:
        raise UsageError(f"a grouping by {by} is of what is in shared memory: in a shell, meshrt memory --by {by}")
    if sort not in _ORDERS:
        raise UsageError(f"no order {sort!r}; expected one of {', '.join(_ORDERS)}")
    arguments = {
        "by": by,
        "sort": sort,
        "reverse": "-r" in options,
        "wide": "--wide" in options,
        "most": words.number(options["-n"], "rows") if "-n" in options else _MOST if variables else None,
        "variables": variables,
        "exact": "--exact" in options,
        "opened": words.variable() if variables else "",
    }
    arguments["actor"] = "" if arguments["opened"] else words.actor(optional=True)
    arguments["opened"] = arguments["opened"] or (words.variable() if variables else "")
    misplaced = _option_behind(str(arguments["opened"]))
    if misplaced:
        raise UsageError(f"options such as {misplaced} stand directly behind the command; {words.usage()}")
    arguments["ranks"] = words.ranks(optional=True)
    words.end()
    _look(arguments)
    return arguments


def _option_behind(name: str) -> str:
    """Return the option that follows the name of a variable, which may have blanks in quotes; or ""."""
    match = re.search(rf"\s({'|'.join(_OPTIONS)}|--exact)(?:\s[^'\"]*)?$", name)
    return match[1] if match is not None else ""


def _look(arguments: Arguments) -> Look:
    return Look(
        arguments["by"],
        arguments["sort"],
        arguments["reverse"],
        arguments["most"],
        ranks=not arguments["variables"],
        width=columns(wide=arguments["wide"]),
    )


def _show(prompt: Prompt, arguments: Arguments) -> Outcome:
    document = ask(
        prompt.client,
        actor=arguments["actor"],
        ranks=arguments["ranks"],
        variables=arguments["opened"] or arguments["variables"],
        frames=arguments["variables"],
        milliseconds=None if arguments["exact"] else MILLISECONDS,
    )
    return Outcome(render(document, _look(arguments)), {"document": document})


_GROUPINGS = ", ".join(each for each in GROUPINGS if each != OF_REFERENCES)
_WORDS = f"ORDER is one of {', '.join(_ORDERS)}; WHAT is one of {_GROUPINGS}."

COMMANDS = (
    Command(
        "memory",
        "memory [-n N] [-r] [--sort ORDER] [--by WHAT] [--wide] [ACTOR] [ranks(...)]",
        "show how much memory ranks have, stopped or running, the largest first",
        lambda words: _parse(words, variables=False),
        _show,
        aliases=("mem",),
        details=(
            "Read by the host agents, so a rank that hangs, was stopped by a signal or holds the GIL has its row too.\n"
            "RSS is all that a rank has in memory, PSS counts a page that n processes have as 1/n, SHARED is what\n"
            "others have too, HEAP belongs to no file, FREE is kept by malloc though nobody uses it. -n shows the N\n"
            "largest, -r turns the order round. STORE is what a rank has put into shared memory, PINNED what of it\n"
            "only others hold, HOLDS what it holds of others; `meshrt memory --refs`, in a shell, shows what that is.\n"
            f"{_WORDS}"
        ),
        takes=("actor", "ranks"),
    ),
    Command(
        "vars",
        "vars [-n N] [-r] [--sort ORDER] [--by WHAT] [--wide] [--exact] [ACTOR] [NAME] [ranks(...)]",
        "show which variables hold memory, those of stopped stack frames included",
        lambda words: _parse(words, variables=True),
        _show,
        details=(
            "Attributes of actors, of their classes, globals of their modules, and the local variables of ranks that\n"
            "are stopped. = is exact, >= was counted until the time was over (200 ms per rank; --exact counts to the\n"
            "end), ~ estimates the whole. Memory that several variables reach is told for each of them, and once in\n"
            f"the totals. No code of yours is run. {_MOST} rows, unless -n says otherwise. NAME, as the table shows\n"
            "it, is opened: what is inside of that variable, the largest first.\n"
            f"  vars self.cache      vars trainer self.cache['train'] ranks(3)\n{_WORDS}"
        ),
        takes=("actor", "ranks"),
    ),
)
