"""``break``: a breakpoint on ranks, running or not; ``tbreak`` is one that is met once."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Outcome, ranks
from meshrt.debug.operations import Break, BreakSet
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.tables import breakpoints
from meshrt.show.ranks import fold_meshes

__all__ = ["COMMAND", "setter"]


def _told(added: BreakSet) -> str:
    meshes = added.meshes
    lines = [f"breakpoint {breakpoints([added], meshes)}"]
    for state, members in added.states.items():
        where = fold_meshes(members, meshes)
        if state == "pending":
            near = f" (did you mean {', '.join(added.near)}?)" if added.near else ""
            lines.append(f"[{where}] pending: not loaded yet{near}; the breakpoint is set when this code is loaded")
        elif state != "bound":
            lines.append(f"[{where}] {state}")
    if added.price:
        lines.append(added.price)
    return "\n".join(lines)


def setter(name: str, summary: str, *, once: bool, aliases: tuple[str, ...] = (), details: str = "") -> Command[Prompt]:
    """Return a command that sets breakpoints.

    Args:
        once: Each rank stops there once.
    """

    def run(prompt: Prompt, arguments: Arguments) -> Outcome:
        added = prompt.client.ask(Break(once=once, goes=prompt.client.goes, **arguments))
        prompt.breaks.add(added.id)
        return Outcome(_told(added), plain(added))

    return Command(
        name,
        summary,
        run,
        Group.BREAKS,
        arguments=(
            Argument("actor", Kind.ACTOR),
            Argument("place", Kind.PLACE, required=True, metavar="FILE:LINE|ACTOR.METHOD"),
            Argument("condition", Kind.CONDITION, metavar=", CONDITION"),
            ranks(),
        ),
        aliases=aliases,
        details=details,
        record={
            "id": "the number of the breakpoint",
            "place": "the place as it was given",
            "condition": 'Python, or `""`',
            "once": "whether each rank stops there once",
            "selection": "the ranks as they were chosen, as text in the [grammar](grammar.md), or all",
            "ranks": "these ranks, by mesh; null means all ranks, also those of later meshes",
            "goes_with": "pid of the IDE process that has set it, and at whose end it is deleted; 0: no IDE has set it",
            "states": '`{"bound" or "pending" or "unanswered: ..." or a problem: ranks}`',
            "lines": "`{line that it was moved to: ranks}`",
            "price": 'what the breakpoint costs, or `""`',
            "near": "loaded files with similar names, if that file is not loaded",
            "meshes": "the names of all meshes by their id",
        },
    )


COMMAND = setter(
    "break",
    "set a breakpoint on ranks, running or not",
    once=False,
    aliases=("b",),
    details=(
        "Needs no breakpoint() in the code. Applies to running ranks too, and to ranks and meshes that start later.\n"
        "  break train.py:88                         break trainer.step\n"
        "  break train.py:88, loss != loss           break train.py:88, step > 10 ranks(hosts=1:)\n"
        "METHOD is an endpoint, or another method or property of the actor's class; ranks stop at its first line.\n"
        "FILE may be the last part of a path. If LINE has no code, the next line of the function is used and shown; a\n"
        "line between two functions is refused. With ranks(...) and several actors, the actor comes first:\n"
        "  break trainer train.py:88 ranks(0)\n"
        "On Python 3.12 and later a rank runs at full speed until it reaches the line."
    ),
)
