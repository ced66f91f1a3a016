"""Terminal side: commands for breakpoints on running ranks, and for what ranks do after an exception."""

from __future__ import annotations

import re

from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.words import Words, parse_nothing
from meshrt.debug.prompt.tables import breakpoints
from meshrt.debug.protocol import MODES
from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.facts import Body
from meshrt.selection import near_miss, parse_prefix
from meshrt.show.ranks import fold_meshes

__all__ = ["COMMANDS"]

_RANKS = re.compile(r"(?:^|\s)(ranks\s*\()")


def _parse_break(words: Words) -> Arguments:
    text = words.rest()
    place, text = _head(text)
    actor = ""
    following, rest = _head(text)
    if place and ":" not in place and "." not in place and following and not following.startswith("ranks"):
        # `break trainer train.py:88`: the first word is the actor.
        actor, place, text = place, following, rest
    if not place:
        raise UsageError(f"the place is missing; {words.usage()}")
    try:
        condition, ranks = _condition_and_ranks(text)
    except SelectionError as problem:
        raise words.blame(problem) from None
    if condition.startswith(","):
        condition = condition[1:].strip()
    elif condition:
        raise UsageError(f"a condition stands behind a comma; {words.usage()}")
    return {"place": place, "condition": condition, "actor": actor, "ranks": ranks}


def _head(text: str) -> tuple[str, str]:
    """Return the first word, which a blank or a comma ends, and the rest; a quoted word may have blanks."""
    match = re.match(r'\s*("[^"]*"(?::\d+)?|[^\s,]*)\s*', text)
    word = match[1].replace('"', "") if match is not None else ""
    return word, text[match.end() :] if match is not None else text


def _condition_and_ranks(text: str) -> tuple[str, str]:
    """Return the condition in ``text`` and the ``ranks(...)`` at its end, or "".

    Conditions may have parentheses and the word ranks, too. Raises SelectionError: invalid ranks.
    """
    problem: SelectionError | None = None
    for match in _RANKS.finditer(text):
        start = match.start(1)
        try:
            _, end = parse_prefix(text, start)
        except SelectionError as error:
            problem = error
            continue
        if not text[end:].strip():
            return text[:start].strip(), text[start:end]
    if problem is not None and text.rstrip().endswith(")") and not text.lstrip().startswith(","):
        raise problem
    return text.strip(), ""


def _break(prompt: Prompt, arguments: Arguments, *, once: bool) -> Outcome:
    body = prompt.client.ask("debug.break", once=once, goes=prompt.client.goes, **arguments)
    return Outcome(_told(body), body)


def _told(body: Body) -> str:
    meshes = body["meshes"]
    lines = [f"breakpoint {breakpoints([body], meshes)}"]
    for state, members in body["states"].items():
        ranks = fold_meshes(members, meshes)
        if state == "pending":
            near = f" (did you mean {', '.join(body['near'])}?)" if body["near"] else ""
            lines.append(f"[{ranks}] pending: nothing like that is loaded there yet{near}; it is set when it is")
        elif state != "bound":
            lines.append(f"[{ranks}] {state}")
    if body["price"]:
        lines.append(body["price"])
    return "\n".join(lines)


def _set(prompt: Prompt, arguments: Arguments) -> Outcome:
    return _break(prompt, arguments, once=False)


def _set_once(prompt: Prompt, arguments: Arguments) -> Outcome:
    return _break(prompt, arguments, once=True)


def _parse_clear(words: Words) -> Arguments:
    ids = words.rest().replace(",", " ").split()
    return {"ids": [words.number(number, "a breakpoint") for number in ids if number != "all"]}


def _clear(prompt: Prompt, arguments: Arguments) -> Outcome:
    body = prompt.client.ask("debug.clear", **arguments)
    rows = body["breaks"]
    return Outcome("\n".join(f"deleted {breakpoints([row], {})}" for row in rows) or "no breakpoints are set", body)


def _breaks(prompt: Prompt, arguments: Arguments) -> Outcome:
    body = prompt.client.ask("debug.breaks")
    return Outcome("\n".join([breakpoints(body["breaks"], body["meshes"]), *_problems(body)]), body)


def _problems(body: Body) -> list[str]:
    return [f"[{fold_meshes(ranks, body['meshes'])}] {text}" for text, ranks in body["problems"].items()]


def _parse_post_mortem(words: Words) -> Arguments:
    mode = words.word()
    if mode and mode not in MODES:
        raise UsageError(f"no mode {mode!r}{near_miss(mode, MODES) or ';'} {words.usage()}")
    actor = words.actor(optional=True)
    words.end()
    return {"mode": mode, "actor": actor}


def _post_mortem(prompt: Prompt, arguments: Arguments) -> Outcome:
    body = prompt.client.ask("debug.postmortem", **arguments)
    modes = body["modes"]
    lines = [f"{actor or 'all actors'}: {mode}" for actor, mode in modes.items()]
    if modes.get("", "default") == "default":  # the program's own setting is in effect
        own, others = body["own"], "others: " if any(modes) else ""
        told = [(mode, fold_meshes(ranks, body["meshes"])) for mode, ranks in own.items()]
        lines += [f"[{ranks}] {others}{mode}: {_MEANING[mode]}" for mode, ranks in told] or [_MEANING["default"]]
    return Outcome("\n".join([*lines, *_problems(body)]), body)


_MEANING = {
    "on": "as the program has set it, a rank stops where an endpoint raises",
    "off": "as the program has set it, no rank stops where an endpoint raises",
    "dump": "as the program has set it, a rank writes a file where an endpoint raises",
    "default": "a rank that was stopped in a call stops once more if that call raises",
}
_BREAK_DETAILS = (
    "Without a breakpoint() in the code: ranks that run are reached too, ranks and meshes that come later as well.\n"
    "  break train.py:88                         break trainer.step\n"
    "  break train.py:88, loss != loss           break train.py:88, step > 10 ranks(hosts=1:)\n"
    "FILE is the end of a path. On a LINE without code it is set at the next one of the same function, which is said;\n"
    "between two functions it is refused. With ranks(...) and several actors, the actor comes first:\n"
    "  break trainer train.py:88 ranks(0)\n"
    "On Python 3.12 and later a rank runs at full speed until it comes to the line."
)

COMMANDS = (
    Command(
        "break",
        "break [ACTOR] FILE:LINE|ACTOR.ENDPOINT [, CONDITION] [ranks(...)]",
        "set a breakpoint on ranks, running or not",
        _parse_break,
        _set,
        aliases=("b",),
        details=_BREAK_DETAILS,
    ),
    Command(
        "tbreak",
        "tbreak [ACTOR] FILE:LINE|ACTOR.ENDPOINT [, CONDITION] [ranks(...)]",
        "the same, once on each rank",
        _parse_break,
        _set_once,
    ),
    Command("clear", "clear [NUMBER ...]", "delete breakpoints, or all", _parse_clear, _clear, aliases=("cl",)),
    Command("breaks", "breaks", "show the breakpoints, and how often each rank came there", parse_nothing, _breaks),
    Command(
        "postmortem",
        "postmortem [on|off|dump|default] [ACTOR]",
        "say what ranks do when an endpoint raises",
        _parse_post_mortem,
        _post_mortem,
        aliases=("pm",),
        details=(
            "on: the rank stops where it raised, with its live variables, until `c` delivers the exception to the\n"
            "caller. off: never. dump: it does not stop, but writes a file with stack, variables and source, for\n"
            "python -m meshrt.debug --open FILE. default: as the program has set it; if it has not, a rank stops\n"
            "only if it had been stopped in this call before. With an ACTOR, for that one alone."
        ),
        takes=("mode", "actor"),
    ),
)
