"""``meshrt completion``: scripts for shells, and the words that these ask for when Tab is pressed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from meshrt.commandline.command import Arguments, Kind, Offer
from meshrt.commandline.completion import Known, candidates
from meshrt.commandline.shell import options_of
from meshrt.commandline.table import COMMANDS
from meshrt.errors import MeshError
from meshrt.inspect.operations import Names
from meshrt.inspect.programs import named
from meshrt.show.status import ExitCode
from meshrt.show.streams import write_out
from meshrt.transport.tools import Program, connect, programs

__all__ = ["show"]

#: Seconds for the names of a program.
_SECONDS = 1.0
_SCRIPTS = {
    "bash": """\
_meshrt() {
    local IFS=$'\\n'
    COMPREPLY=($(meshrt completion bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _meshrt meshrt
""",
    "zsh": """\
_meshrt() {
    local -a found
    found=(${(f)"$(meshrt completion zsh "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _meshrt meshrt
""",
    "fish": """\
complete -c meshrt -a '(meshrt completion fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
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
    """Return the completions of the last one of ``words``, which are behind ``meshrt``."""
    command = COMMANDS.get(words[0]) if len(words) > 1 else None
    extra = options_of(command) if command is not None else ()
    known = Known()
    if command is not None:
        known = _known(words, asks=any(each.kind in _NAMED for each in command.arguments))
    found = candidates(COMMANDS, words, Offer.SHELL, known, extra)
    return [word for word in dict.fromkeys(found) if word.startswith(words[-1])]


def _known(words: Sequence[str], *, asks: bool) -> Known:
    """Return the programs; and the names of the one that the words name, or of the only one."""
    running = programs()
    chosen = [program for word in words[1:-1] if (program := named(word, running)) is not None] or running
    runs = [each.run_id for each in running]
    if not asks or len(chosen) != 1:
        return Known(runs=runs)
    try:
        return _ask(chosen[0], runs)
    except (MeshError, OSError):
        return Known(runs=runs)  # completion is optional


def _ask(program: Program, runs: Sequence[str]) -> Known:
    connection = connect(program, lambda _event, _body: None, lambda: None)
    try:
        found = connection.ask(Names(), _SECONDS)
    finally:
        connection.close()
    return Known(list(found.actors), list(found.dims), dict(found.stopped), runs)
