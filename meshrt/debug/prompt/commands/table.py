"""Terminal side: the one table of the prompt's commands. Parsing, help, completion and the docs come from it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from meshrt.debug.prompt.commands import acting, looking, memory, points, values
from meshrt.debug.prompt.commands.command import Arguments, Command, Outcome, Prompt
from meshrt.debug.prompt.commands.words import Words, parse_nothing
from meshrt.debug.protocol import MODES
from meshrt.errors import UsageError
from meshrt.selection import STATE_WORDS, near_miss

__all__ = [
    "COMMANDS",
    "PDB_WORDS",
    "Invocation",
    "candidates",
    "elsewhere",
    "find",
    "help_text",
    "parse_line",
    "pdb_words",
]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A parsed line: the command and its arguments."""

    command: Command
    arguments: Arguments

    def run(self, prompt: Prompt) -> Outcome:
        """Run the command. Raises MeshError with the broker's refusal, OSError if the program does not answer."""
        return self.command.run(prompt, self.arguments)


def _parse_help(words: Words) -> Arguments:
    topic = words.word()
    words.end()
    return {"topic": topic}


def _help(prompt: Prompt, arguments: Arguments) -> Outcome:
    text = help_text(arguments["topic"])
    return Outcome(text, {"text": text})


def _quit(prompt: Prompt, arguments: Arguments) -> Outcome:
    prompt.leave()
    return Outcome()


_BASICS = (
    Command(
        "help",
        "help [COMMAND]",
        "show the commands, or one of them in full",
        _parse_help,
        _help,
        aliases=("h", "?"),
        takes=("command",),
    ),
    Command(
        "quit",
        "quit",
        "leave the debugger; ranks that are stopped stay stopped",
        parse_nothing,
        _quit,
        aliases=("q", "exit"),
        details="Ctrl-D does the same. The debugger can be opened again at any time.",
    ),
)

COMMANDS: tuple[Command, ...] = (
    *looking.COMMANDS,
    *memory.COMMANDS,
    *values.COMMANDS,
    *acting.COMMANDS,
    *points.COMMANDS,
    *_BASICS,
)

#: Commands of pdb that are often typed at the mesh's prompt: a hint is shown.
PDB_WORDS = frozenset(
    (
        *("n", "next", "s", "step", "r", "return", "until", "unt", "u", "up", "d", "down", "j", "jump", "!"),
        *("ll", "longlist", "args", "retval", "rv", "display", "undisplay", "interact", "detach", "commands"),
        "condition",
    )
)

_WORDS = {word: command for command in COMMANDS for word in (command.name, *command.aliases)}


def find(word: str) -> Command:
    """Return the command with the name or alias ``word``. Raises UsageError, which names the nearest ones."""
    command = _WORDS.get(word)
    if command is not None:
        return command
    if word == "detach":
        raise UsageError("no rank is attached, and `detach` leaves one; attach ACTOR RANK goes to one, quit leaves")
    if word in PDB_WORDS or word.startswith("!"):
        raise UsageError(f"{word!r} is a command of pdb: attach to a rank first, or: cast ACTOR ranks(...) {word}")
    names = [command.name for command in COMMANDS]
    raise UsageError(f"no command {word!r}" + (near_miss(word, names) or f"; there are: {', '.join(names)}"))


def elsewhere(line: str, said: str) -> str:
    """Return a hint for a command of the mesh's prompt that was typed at a rank's prompt; "" for any other line.

    Args:
        said: The answer of pdb: there is no hint if the rank has a variable of that name.
    """
    word = line.strip()
    unknown = (f"NameError: name {word!r} is not defined", f"<built-in function {word}>")
    if word not in _WORDS or word in pdb_words() or not said.rstrip().endswith(unknown):
        return ""
    here = f"; from here: {word} ACTOR, or {word} ranks(...)" if _WORDS[word] in memory.COMMANDS else ""
    return f"`{word}` is a command of the mesh's prompt: `detach` goes there{here}"


def parse_line(line: str) -> Invocation:
    """Return the command and the arguments in ``line``, which is not blank.

    Raises:
        UsageError: No such command, or invalid arguments.
        SelectionError: Invalid ranks (``.span`` points into ``line``).
    """
    start = len(line) - len(line.lstrip())
    word = line[start:].split(maxsplit=1)[0]
    command = find(word)
    return Invocation(command, command.parse(Words(line, start + len(word), command.usage)))


def candidates(
    text: str, actors: Sequence[str], dims: Sequence[str], stopped: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[str]:
    """Return completions of the last word of ``text``.

    Args:
        actors: Names of actors.
        dims: Labels of dimensions.
        stopped: The stopped ranks, by actor.
    """
    words = text.split(" ")
    if len(words) == 1:
        return [command.name + (" " if " " in command.usage else "") for command in COMMANDS]
    command = _WORDS.get(words[0])
    if command is None:
        return []
    within = text.rfind("ranks(")
    if within >= 0 and ")" not in text[within:]:
        last = words[-1]
        begin = last[: max(last.rfind("("), last.rfind(",")) + 1]
        return [begin + dim + "=" for dim in dims] + [begin + word for word in ("all", *STATE_WORDS)]
    given = []
    for before, word in pairwise(words[:-1]):
        if word and not word.startswith("-") and before not in ("-n", "--diff", "--sort", "--by"):
            given.append(word)
    takes = list(command.takes)
    if takes[:1] == ["state"] and given and given[0] not in (*STATE_WORDS, "all"):
        takes = takes[1:]
    if len(given) >= len(takes):
        return []
    match takes[len(given)]:
        case "actor":
            return [f"{actor} " for actor in actors]
        case "ranks":
            return ["ranks("]
        case "rank":
            return list(stopped.get(given[0], ()))
        case "command":
            return [command.name for command in COMMANDS]
        case "state":
            return [*STATE_WORDS, "all", *actors]
        case "mode":
            return list(MODES)
    return []


@functools.cache
def pdb_words() -> list[str]:
    """Return the names and aliases of pdb's commands, sorted."""
    import pdb  # start-up: needed only for completion at a rank's prompt

    return sorted(name.removeprefix("do_") for name in dir(pdb.Pdb) if name.startswith("do_"))


def help_text(topic: str = "") -> str:
    """Return the help of one command, or of all ("").

    Raises:
        UsageError: No such command.
    """
    if topic:
        command = find(topic)
        also = f"  (also: {', '.join(command.aliases)})" if command.aliases else ""
        return f"{command.usage}{also}\n{command.summary}" + (f"\n{command.details}" if command.details else "")
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"{command.name:{width}}  {command.summary}" for command in COMMANDS]
    return "\n".join([*lines, "`help COMMAND` shows how one is written"])
