"""``meshrt.memory()``: the memory view for the script itself."""

from __future__ import annotations

import contextlib
from typing import Any

from meshrt.errors import UsageError
from meshrt.hooks.operations import Connection
from meshrt.memory.document import Document, document_of, plain
from meshrt.memory.operations import MILLISECONDS, LookAtMemory
from meshrt.transport.tools import connect, own_program

__all__ = ["ask", "memory"]

#: Seconds within which a program must answer; it waits for its ranks itself.
_ANSWER_SECONDS = 90.0
_EXACT_SECONDS = 900.0


def memory(
    ranks: str = "",
    *,
    actor: str = "",
    variables: bool | str = False,
    frames: bool = False,
    milliseconds: float = MILLISECONDS,
    exact: bool = False,
    references: bool = False,
) -> dict[str, Any]:
    """Return how much memory the ranks of this program have: plain data, as ``meshrt memory --json`` prints it.

    Any thread of the script. No user code is run to measure it.

    Args:
        ranks: A selection, as at the debugger's prompt: ``"ranks(hosts=0)"``; "": all ranks.
        actor: Ranks and variables of this actor only.
        variables: Include variables; or what is inside one of them, by its name (``"self.cache"``).
        frames: Include the variables of stack frames that are stopped in the debugger.
        milliseconds: Processor time for the variables of one rank.
        exact: Count the variables completely, however long that takes.
        references: Include the references in the shared memory of the hosts, and their holders.
    Raises:
        UsageError: This process is not a script with a mesh; there is no such actor or variable; or ``milliseconds`` is
            not a valid limit.
        SelectionError: No such ranks.
    """
    program = own_program()
    if program is None:
        raise UsageError("memory() shows the ranks of its own script; expected a call in a script that has a mesh")
    if not isinstance(variables, bool | str):
        raise UsageError(f"variables is {variables!r}; expected True, False, or the name of a variable")
    look = LookAtMemory(
        ranks=ranks,
        actor=actor,
        variables=bool(variables) or frames or exact,
        opened=variables if isinstance(variables, str) else "",
        frames=frames,
        milliseconds=None if exact else milliseconds,
        references="" if references else None,
    )
    with contextlib.closing(connect(program)) as connection:
        return plain(ask(connection, look))


def ask(connection: Connection, look: LookAtMemory) -> Document:
    """Return the answer of a program.

    Raises:
        MeshError: The program rejects the request.
        ConnectionError, TimeoutError: The program has ended, or does not answer.
    """
    return document_of(connection.ask(look, _EXACT_SECONDS if look.milliseconds is None else _ANSWER_SECONDS))
