"""``meshrt completion``: scripts for shells, and the words that these ask for when Tab is pressed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from meshrt.commandline.command import Arguments, Kind, Offer
from meshrt.commandline.completion import FILES, Known, candidates
from meshrt.commandline.table import COMMANDS
from meshrt.inspect.operations import Names
from meshrt.inspect.programs import named
from meshrt.inspect.survey import survey
from meshrt.show.status import ExitCode
from meshrt.show.streams import write_out
from meshrt.transport.tools import programs

__all__ = ["show"]

#: Seconds for the names of programs, and programs that are asked at most.
_SECONDS = 1.0
_MOST = 8
_SCRIPTS = {
    "bash": """\
_meshrt() {
    local IFS=$'\\n'
    COMPREPLY=($(meshrt completion bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ $COMPREPLY == :files: ]]; then COMPREPLY=(); compopt -o default; fi
}
complete -o nosort -F _meshrt meshrt
""",
    "zsh": """\
_meshrt() {
    local -a found
    found=(${(f)"$(meshrt completion zsh "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if [[ $found == :files: ]]; then _files; else compadd -V meshrt -a found; fi
}
compdef _meshrt meshrt
""",
    "fish": """\
function __meshrt
    set -l found (meshrt completion fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
    if test "$found" = :files:
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $found
    end
end
complete -c meshrt -f -k -a '(__meshrt)'
""",
}
#: Kinds of arguments of which a program has the names.
_NAMED = (Kind.ACTOR, Kind.RANKS, Kind.RANK)


def show(given: Arguments) -> int:
    """Run the command. Returns the exit code."""
    if given["words"]:
        write_out(sys.stdout, "".join(f"{word}\n" for word in completions(given["words"])))
    else:
        write_out(sys.stdout, _SCRIPTS[given["shell"]])
    return ExitCode.OK


def completions(words: Sequence[str]) -> list[str]:
    """Return the completions of the last one of ``words``, which are behind ``meshrt``.

    It is `FILES` alone where a file can be meant and no other word fits.
    """
    command = COMMANDS.get(words[0]) if len(words) > 1 else None
    known = Known()
    if command is not None:
        known = _known(words, asks=any(each.kind in _NAMED for each in command.arguments))
    found = candidates(COMMANDS, words, Offer.SHELL, known)
    fitting = [word for word in dict.fromkeys(found) if word != FILES and word.startswith(words[-1])]
    return fitting or [FILES] * (FILES in found)


def _known(words: Sequence[str], *, asks: bool) -> Known:
    """Return the programs; and the names of the one that the words name, or of all."""
    running = programs()
    chosen = [program for word in words[1:-1] if (program := named(word, running)) is not None] or running
    known = Known(runs=[each.run_id for each in running])
    if not asks:
        return known
    # A program that refuses, or does not answer, has none: completion is optional.
    found = survey(chosen[:_MOST], lambda connection: connection.ask(Names(), _SECONDS), _SECONDS)
    answers = [each.answer for each in found if each.answer is not None]
    return Known(
        list(dict.fromkeys(actor for each in answers for actor in each.actors)),
        list(dict.fromkeys(dim for each in answers for dim in each.dims)),
        {actor: ranks for each in answers for actor, ranks in each.stopped.items()},
        known.runs,
    )
