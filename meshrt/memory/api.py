"""``meshrt.memory()``: the memory view for the script itself."""

from __future__ import annotations

from typing import Any, Protocol

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.memory.asked import MILLISECONDS, OBJECTS
from meshrt.memory.document import Document, document_of
from meshrt.transport.tools import connect, own_program

__all__ = ["ask", "memory"]

#: Seconds until a program must have answered; it waits itself for its ranks.
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

    Any thread of the script. Nothing of the program is run to measure it.

    Args:
        ranks: These ranks only, as at the debugger's prompt: ``"ranks(hosts=0)"``; "": all.
        actor: Ranks and variables of this actor only.
        variables: Tell which variables hold memory; or what is inside of one, by its name (``"self.cache"``).
        frames: ... those of stack frames that stand in the debugger among them.
        milliseconds: Processor time for the variables of one rank.
        exact: Count them to the end, however long that takes.
        references: Tell what is in the shared memory of the hosts, and who holds it.
    Raises:
        UsageError: This process is no script with a mesh; there is no such actor, or no such variable;
            ``milliseconds`` is no limit.
        SelectionError: No such ranks.
    """
    program = own_program()
    if program is None:
        raise UsageError("memory() looks at the ranks of its own script; expected a mesh, and to be called there")
    connection = connect(program, lambda _event, _body: None, lambda: None)
    try:
        return ask(
            connection,
            ranks=ranks,
            actor=actor,
            variables=variables or frames or exact,
            frames=frames,
            milliseconds=None if exact else milliseconds,
            references="" if references else None,
        )
    finally:
        connection.close()


class _Asks(Protocol):
    """A connection to a program."""

    def request(self, operation: str, body: Body, timeout: float) -> Body: ...


def ask(connection: _Asks, *, variables: bool | str, milliseconds: float | None, **asked: Any) -> Document:
    """Return what a program answers to a question, as `memory` asks it.

    Args:
        variables: As in `memory`.
        milliseconds: None: no limit.

    Raises:
        UsageError: ``variables`` is neither.
        MeshError: It refuses: the question was wrong.
        ConnectionError, TimeoutError: It has ended, or does not answer.
    """
    if not isinstance(variables, bool | str):
        raise UsageError(f"variables is True, False, or the name of one, not {variables!r}")
    exact = milliseconds is None
    inside = {"variables": bool(variables), "opened": variables if isinstance(variables, str) else ""}
    body = {**asked, **inside, "milliseconds": milliseconds, "objects": None if exact else OBJECTS}
    return document_of(connection.request("memory.look", body, _EXACT_SECONDS if exact else _ANSWER_SECONDS))
