"""Terminal side: which lines are commands of the mesh, at its own prompt and at the prompt of a rank.

At a rank's prompt lines are for its pdb. A line whose first word is a command of the table is for the mesh if pdb could
do nothing with it:

* pdb has that command too: it is pdb's; only ``where`` and ``continue``, to which pdb gives no argument, are the mesh's
  if they have one (a number is none: later versions of pdb take it);
* pdb does not have it: it is the mesh's, unless it is valid Python: a statement, or an expression whose first name is a
  variable where the rank is stopped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from meshrt.commandline.command import Offer
from meshrt.commandline.line import head, is_expression, is_python
from meshrt.commandline.table import COMMANDS, Invocation
from meshrt.debug.prompt.context import Prompt
from meshrt.errors import UsageError

__all__ = ["is_for_the_mesh", "is_pdb_word", "parse_line", "rank_words"]

#: Commands of pdb that are often typed at the mesh's prompt: a hint is shown.
_PDB_WORDS = frozenset(
    (
        *("n", "next", "s", "step", "r", "return", "until", "unt", "u", "up", "d", "down", "j", "jump", "!"),
        *("ll", "longlist", "args", "retval", "rv", "display", "undisplay", "interact", "detach", "commands"),
        "condition",
    )
)
#: Commands of the table to whose namesakes pdb gives no argument.
_WITHOUT_ARGUMENT = ("where", "continue")


def is_pdb_word(word: str) -> bool:
    """Whether a word is a command of pdb that the mesh's prompt does not have."""
    return word in _PDB_WORDS or word.startswith("!")


def parse_line(line: str, offer: Offer = Offer.PROMPT) -> Invocation[Prompt]:
    """Return the command and the arguments in a line of the mesh's prompt, which is not blank. Raises UsageError."""
    word, _ = head(line)
    if word == "detach":
        raise UsageError("no rank is attached; attach ACTOR RANK attaches to a rank, quit leaves the debugger")
    if is_pdb_word(word):
        raise UsageError(f"{word!r} is a command of pdb: attach to a rank first, or: cast ACTOR ranks(...) {word}")
    return COMMANDS.parse(line, offer)


def is_for_the_mesh(line: str, is_variable: Callable[[str], bool]) -> bool:
    """Whether a line that was typed at a rank's prompt is a command of the mesh, as the module says.

    Args:
        is_variable: Whether the rank has a variable of a name where it is stopped.
    """
    word, rest = head(line)
    if word == "meshrt" and rest and not is_python(line.strip()):
        return True  # its prompt says how the command is typed
    command = COMMANDS.get(word) if word else None
    if command is None or Offer.PROMPT not in command.offer:
        return False
    if word in _pdb_words():
        return command.name in _WITHOUT_ARGUMENT and bool(rest) and not rest.isdigit()
    return not is_python(line.strip()) or (is_expression(line.strip()) and not is_variable(word))


def rank_words() -> list[str]:
    """Return the words that can be typed at a rank's prompt: those of pdb, and commands of the mesh; sorted."""
    own = [each.name for each in COMMANDS.offered(Offer.PROMPT)]
    return sorted({"detach", *_pdb_words(), *own})


@functools.cache
def _pdb_words() -> frozenset[str]:
    import pdb  # start-up: needed only at a rank's prompt

    return frozenset(name.removeprefix("do_") for name in dir(pdb.Pdb) if name.startswith("do_"))
