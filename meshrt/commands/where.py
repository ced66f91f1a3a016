"""``where``: the stacks of all ranks, as one tree."""

from __future__ import annotations

from meshrt.commandline.command import (
    AnyCommand,
    Argument,
    Arguments,
    Command,
    Group,
    Kind,
    Offer,
    Option,
    Outcome,
    ranks,
)
from meshrt.commandline.numbers import pid
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.inspect.operations import Where
from meshrt.inspect.text import render_stacks
from meshrt.show.table import columns

__all__ = ["COMMAND"]


def _where(prompt: Prompt, arguments: Arguments) -> Outcome:
    stacks = prompt.client.ask(Where(**arguments))
    return Outcome(render_stacks(stacks, columns=columns()), plain(stacks))


_PROCESSES: AnyCommand = Command(
    "where",
    "show the stacks of Python processes that meshrt has not started, merged in the same way",
    group=Group.LOOK,
    options=(
        Option(
            "--pid",
            "these processes, which are the ranks 0, 1, ... in this order",
            "pids",
            "PID",
            several=True,
            convert=pid,
        ),
        Option("-v, --verbose", "show the stack frames and threads of libraries and of Python, too"),
        Option("--json", "one object instead of text (docs/json.md)"),
    ),
    details=(
        "Works for any Python that py-spy supports; py-spy must be installed. Each process is paused for some\n"
        "milliseconds. Needs the permission to read the memory of the processes; root has it."
    ),
    main="meshrt.inspect.processes:show",
    offer=Offer.SHELL,
)

COMMAND = Command(
    "where",
    "show the stacks of all ranks, stopped or running, merged into one tree",
    _where,
    Group.LOOK,
    arguments=(Argument("actor", Kind.ACTOR), ranks()),
    options=(Option("-v, --verbose", "show the runtime's stack frames too"),),
    aliases=("w", "bt"),
    details=(
        "Equal stacks are shown once, with the number and the list of their ranks, the largest group first. Each\n"
        "group shows whether its ranks are running, or blocked and for how long. No rank is interrupted. If C code\n"
        "holds the GIL of a rank, its stack is obtained by a signal (faulthandler), and its row shows this."
    ),
    record={
        "meshes": "the merged stacks of each mesh, see [below](#the-stacks-of-where)",
        "left_out": "how many further meshes there are",
        "waits": "with `waits_left_out`: [who waits for whom](#who-waits-for-whom)",
        "unread": "[errors that nobody has read](#errors-that-nobody-has-read)",
        "script": 'the place of the script, if all ranks wait for messages and the script waits for no rank; or `""`',
    },
    processes=_PROCESSES,
)
