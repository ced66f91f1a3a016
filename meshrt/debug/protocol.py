"""The debugger's protocol between ranks, broker and terminals: states and names.

The operations and reports: `meshrt.debug.rank_operations`, `meshrt.debug.operations`.

The life of one stop, as events of the rank::

    (nothing) --stopped--> at a prompt --[input]--> busy --stopped--> at a prompt again, with the answer
                                                     |
                                                     '--resumed(how)--> running --stopped--> at a prompt, a new stop
                                                                            '----ended----> (nothing)

Every prompt has a number (``seq``). An input names the prompt that it answers: a line that comes too late is dropped,
and never reaches another prompt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, get_args

__all__ = [
    "ABORTED",
    "BUSY",
    "CLOSED",
    "ENDED",
    "MODES",
    "PDB_PROMPT",
    "QUITS",
    "RUNNING",
    "STEPPING",
    "STOPPED",
    "Mode",
    "SessionKey",
    "is_of_pdb",
    "session_of_ide",
]

#: What a rank does when an endpoint raises: "on": it stops; "off": it does not; "dump": it writes a file;
#: "default": as the program has set it.
Mode = Literal["on", "off", "dump", "default"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: The text of pdb's own prompt; any other prompt is shown unchanged.
PDB_PROMPT = "(Pdb) "


def is_of_pdb(prompt: str) -> bool:
    """Whether pdb reads at a prompt, its own or that of a ``debug`` command, ``((Pdb))``; or else a program."""
    return prompt.endswith(") ") and prompt.strip("() ") == "Pdb"


# States of a session.
STOPPED = "stopped"
BUSY = "busy"  # got a line, has not answered yet
STEPPING = "stepping"  # resumed by a stepping command: expected back
RUNNING = "running"  # resumed by continue: may never stop again
ENDED = "ended"

#: pdb's commands that abort an endpoint: a person has to confirm them.
QUITS = ("q", "quit", "exit")

ABORTED = "a person aborted this endpoint from the debugger (q)"
CLOSED = "the mesh was stopped while this rank was stopped in the debugger"


class SessionKey(NamedTuple):
    """The thread of a rank that is stopped: mesh id, actor, base rank, thread ("": the actor's own).

    It never holds a label, or a rank's number in a view: two meshes with equal names are two keys.
    """

    mesh_id: str
    actor: str
    rank: int
    thread: str = ""


@lru_cache(maxsize=4096)
def session_of_ide(pid: int, number: int) -> str:
    """Return the name of an IDE session: ``"PID/NUMBER"``; "" if ``number`` is 0.

    Args:
        pid: Process of the router to which the IDE is connected.
        number: The router's number of the session; 0: no session.
    """
    return f"{pid}/{number}" if number else ""
