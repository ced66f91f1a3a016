"""``postmortem``: why a program failed; and what ranks do after an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Offer, Option, Outcome, Values, run
from meshrt.debug.protocol import MODES
from meshrt.errors import UsageError
from meshrt.show.ranks import fold_meshes
from meshrt.show.records import POSTMORTEM

if TYPE_CHECKING:  # start-up: the shell needs no prompt
    from meshrt.debug.prompt.context import Prompt

__all__ = ["COMMAND"]

_MEANING = {
    "on": "set by the program: a rank stops where an endpoint raises",
    "off": "set by the program: no rank stops where an endpoint raises",
    "dump": "set by the program: a rank writes a file where an endpoint raises",
    "default": "a rank that was stopped in a call stops once more if that call raises",
}


def _check(arguments: Values) -> None:
    if arguments.get("run") and arguments["mode"]:  # in a shell: behind a mode comes the actor, and no program
        arguments["run"], arguments["actor"] = "", arguments["run"]
    if arguments["list"] and arguments["ranks"] is not None:
        raise UsageError(
            "--list cannot be combined with --ranks: --list shows all failures, --ranks shows ranks of the last one"
        )
    reports = arguments["list"] or arguments["ranks"] is not None or arguments["report"]
    if reports and (arguments["mode"] or arguments["actor"] or arguments["modes"]):
        raise UsageError("a report cannot be combined with a mode, an actor or --modes")


def _post_mortem(prompt: Prompt, arguments: Arguments) -> Outcome:
    if not arguments["mode"] and not arguments["modes"]:
        from meshrt.failure.postmortem import report  # start-up: seldom, at a prompt

        text = report(str(prompt.client.pid), listed=arguments["list"], rank=arguments["ranks"])
        return Outcome(text.rstrip("\n"), {"text": text})
    from meshrt.debug.operations import PostMortemModes  # start-up: the report, in a shell, does without
    from meshrt.debug.prompt.context import plain  # start-up: likewise
    from meshrt.debug.prompt.tables import problems  # start-up: likewise

    found = prompt.client.ask(PostMortemModes(mode=arguments["mode"], actor=arguments["actor"]))
    modes = found.modes
    lines = [f"{actor or 'all actors'}: {mode}" for actor, mode in modes.items()]
    if modes.get("", "default") == "default":  # the program's own setting is in effect
        others = "others: " if any(modes) else ""
        told = [(mode, fold_meshes(ranks, found.meshes)) for mode, ranks in found.own.items()]
        lines += [f"[{ranks}] {others}{mode}: {_MEANING[mode]}" for mode, ranks in told] or [_MEANING["default"]]
    return Outcome("\n".join([*lines, *problems(found.problems, found.meshes)]), plain(found))


COMMAND = Command(
    "postmortem",
    "show why a program failed, or set what ranks do when an endpoint raises",
    _post_mortem,
    Group.AFTERWARDS,
    arguments=(
        Argument("mode", choices=MODES, metavar="on|off|dump|default", skips=True, offer=Offer.SHELL),
        run(
            "the program: its id (shown in the report), its pid if it runs, its run directory, or a failure file; "
            "default: the program that failed last"
        ),
        Argument("mode", choices=MODES, metavar="on|off|dump|default", offer=Offer.PROMPT | Offer.CONSOLE),
        Argument("actor", Kind.ACTOR, "with a mode: set it for this actor only"),
    ),
    options=(
        Option("--list", "list the failures of the program"),
        Option(
            "--ranks",
            "show all data about one rank, or about a selection such as 'hosts=1': its failure, or where it was",
            metavar="SELECTION",
        ),
        Option("--report", "show the report of the last failure, as without any argument"),
        Option("--modes", "show what ranks do when an endpoint raises"),
        Option("--json", "one JSON object (docs/json.md); without other options: the failure file", offer=Offer.SHELL),
    ),
    aliases=("pm",),
    details=(
        "Shows the report of the last failure. A program that failed several times has several failure files: the\n"
        "last one is shown, --list lists all. A mode sets what ranks of a running program do when an endpoint raises.\n"
        "on: the rank stops where it raised, with its live variables, until `c` passes the exception to the caller.\n"
        "off: the rank does not stop. dump: it does not stop, but writes a file with stack, variables and source, for\n"
        "meshrt debug --open FILE. default: as the program has set it; otherwise a rank stops only if it already\n"
        "stopped during this call."
    ),
    main="meshrt.debug.shell.postmortem:show",
    schema=POSTMORTEM,
    reads_files=True,
    check=_check,
    record={
        "modes": '`{actor or "" for all: mode}`',
        "own": "`{mode: ranks}`: what the program itself has set; it applies in mode `default`",
        "problems": "`{reason: ranks}` of ranks that have not answered",
        "meshes": "the names of all meshes by their id",
    },
)
