"""Terminal side: the one table of the prompt's commands. Parsing, help and completion come from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from meshrt.errors import UsageError
from meshrt.selection import parse_prefix
from meshrt.selection.grammar.complaints import near_miss

__all__ = ["COMMANDS", "PDB_WORDS", "Command", "Invocation", "find", "help_text", "parse_line"]


@dataclass(frozen=True, slots=True)
class Command:
    """One word of the prompt."""

    name: str
    aliases: tuple[str, ...]
    usage: str
    summary: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A line that was understood: the command and its arguments."""

    command: str
    arguments: dict[str, str] = field(default_factory=dict)


COMMANDS = (
    Command(
        "list",
        ("l",),
        "list [-v]",
        "show the stopped ranks",
        "One row per stopped rank: its number in the mesh it was spawned on, the coordinates of the view through\n"
        "which it was called, host, function and line. Above 32 rows equal stops share a row; -v shows every one.",
    ),
    Command(
        "attach",
        ("a",),
        "attach [--steal] ACTOR RANK",
        "work with pdb on one stopped rank",
        "RANK is a number as in the listing, or coordinates such as hosts=3,gpus=1. What the rank wrote last is shown\n"
        "again. Then every line is a pdb command of that rank, until `detach`. There `q` asks before it aborts the\n"
        "endpoint, and Ctrl-C returns here without touching the rank. --steal takes it from another terminal.",
    ),
    Command(
        "cast",
        (),
        "cast ACTOR ranks(...) COMMAND",
        "give a pdb command to a set of stopped ranks",
        "Answers are grouped: equal ones once, with their ranks. Ranks that are not stopped are named.\n"
        "  cast debugee ranks(3) p x            cast debugee ranks(0:8, 12) n\n"
        "  cast debugee ranks(hosts=0) p x      cast debugee ranks(hosts=1:3, gpus=(0,2)) c\n"
        "  cast debugee ranks(all) p x          cast debugee ranks(stopped & !hosts=2) bt\n"
        "A rank that has not answered after a while is named and left to itself; Ctrl-C does that at once.",
    ),
    Command(
        "continue",
        ("c",),
        "continue",
        "resume every stopped rank",
        "Every rank goes on from where it stands and stops again at the next breakpoint, if there is one.",
    ),
    Command(
        "wait",
        (),
        "wait ACTOR [ranks(...)] [SECONDS]",
        "wait until these ranks are stopped",
        "Without ranks(...) all ranks of the actor are meant; without SECONDS 60. For scripts: the actor may be\n"
        "spawned later. Not all stopped in time is an error.",
    ),
    Command("status", (), "status", "say what the whole program does, in a few lines"),
    Command("help", ("h", "?"), "help [COMMAND]", "show the commands, or one of them in full"),
    Command(
        "quit",
        ("q", "exit"),
        "quit",
        "leave the debugger; ranks that are stopped stay stopped",
        "Ctrl-D does the same. The debugger can be opened again at any time.",
    ),
)

#: Typed at the wrong prompt often enough to deserve a hint.
PDB_WORDS = frozenset(
    (
        *(
            "n",
            "next",
            "s",
            "step",
            "r",
            "return",
            "until",
            "unt",
            "u",
            "up",
            "d",
            "down",
            "p",
            "pp",
            "w",
            "where",
            "bt",
        ),
        *("b", "break", "tbreak", "cl", "clear", "ll", "longlist", "args", "whatis", "source", "display", "undisplay"),
        *("interact", "jump", "j", "detach", "commands", "condition", "retval", "rv", "!"),
    )
)

_WORDS = {word: command for command in COMMANDS for word in (command.name, *command.aliases)}
_ACTOR = r"[\w-]+(?:@[\w.-]+)?(?:/[\w.-]+)?"


def find(word: str) -> Command:
    """Return the command that ``word`` is a name of; UsageError with the nearest ones otherwise."""
    command = _WORDS.get(word)
    if command is not None:
        return command
    if word in PDB_WORDS or word.startswith("!"):
        raise UsageError(f"{word!r} is a command of pdb: attach to a rank first, or: cast ACTOR ranks(...) {word}")
    known = ", ".join(command.name for command in COMMANDS)
    raise UsageError(f"no command {word!r}{near_miss(word, _WORDS) or ';'} there are: {known}")


def parse_line(line: str) -> Invocation:
    """Return what ``line`` asks for. Raises UsageError, or SelectionError with a caret."""
    word, _, rest = line.strip().partition(" ")
    command = find(word)
    rest = rest.strip()
    match command.name:
        case "attach":
            return _attach(command, rest)
        case "cast":
            return _cast(command, line.strip())
        case "wait":
            return _wait(command, line.strip())
        case "list" if rest in ("", "-v"):
            return Invocation("list", {"verbose": rest})
        case "help" if " " not in rest:
            return Invocation("help", {"topic": rest})
        case _ if not rest:
            return Invocation(command.name)
    raise _usage(command)


def _usage(command: Command) -> UsageError:
    return UsageError(f"usage: {command.usage}")


def _attach(command: Command, rest: str) -> Invocation:
    words = rest.split()
    steal = "--steal" in words
    words = [word for word in words if word != "--steal"]
    if len(words) < 2:
        raise _usage(command)
    if not re.fullmatch(_ACTOR, words[0]):
        raise UsageError(f"{words[0]!r} is no name of an actor; {_usage(command)}")
    return Invocation("attach", {"actor": words[0], "rank": " ".join(words[1:]), "steal": "yes" if steal else ""})


def _head(command: Command, line: str) -> tuple[str, int]:
    """Return the actor of ``word ACTOR ...`` and where the rest begins."""
    match = re.match(rf"\S+\s+({_ACTOR})(?=\s|$)\s*", line)
    if match is None:
        raise _usage(command)
    return match[1], match.end()


def _cast(command: Command, line: str) -> Invocation:
    actor, start = _head(command, line)
    _, end = parse_prefix(line, start)
    text = line[end:].strip()
    if not text:
        raise UsageError(f"the pdb command is missing; {_usage(command)}")
    return Invocation("cast", {"actor": actor, "ranks": line[start:end], "line": text})


def _wait(command: Command, line: str) -> Invocation:
    actor, start = _head(command, line)
    ranks = ""
    if line.startswith("ranks", start):
        _, end = parse_prefix(line, start)
        ranks, start = line[start:end], end
    seconds = line[start:].strip() or "60"
    if not re.fullmatch(r"\d+(\.\d+)?", seconds):
        raise UsageError(f"{seconds!r} is no number of seconds; {_usage(command)}")
    return Invocation("wait", {"actor": actor, "ranks": ranks, "seconds": seconds})


def help_text(topic: str = "") -> str:
    """Return the help of one command, or of all."""
    if topic:
        command = find(topic)
        also = f"  (also: {', '.join(command.aliases)})" if command.aliases else ""
        return f"{command.usage}{also}\n{command.summary}" + (f"\n{command.details}" if command.details else "")
    width = max(len(command.usage) for command in COMMANDS)
    return "\n".join(f"{command.usage:{width}}  {command.summary}" for command in COMMANDS)
