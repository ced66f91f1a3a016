"""The words for what ranks do; those that a person types are the words of the grammar of selections."""

from __future__ import annotations

__all__ = [
    "BLOCKED",
    "DEAD",
    "IDLE",
    "NOT_ANSWERING",
    "POST_MORTEM",
    "RUNNING",
    "STANDING",
    "STARTING",
    "STOPPED",
    "WORST_FIRST",
    "silence",
]

#: Its process has ended.
DEAD = "dead"
#: Its control thread is silent: the process was stopped by a signal, C code holds its GIL, or its host is silent.
NOT_ANSWERING = "not-answering"
#: It is stopped after an exception.
POST_MORTEM = "post-mortem"
#: It is at a prompt, at work on a line typed there, or stopped in an IDE.
STOPPED = "stopped"
#: Its endpoint has been at the same instruction, using no CPU, since some time.
BLOCKED = "blocked"
#: Anything else, waiting for messages included.
RUNNING = "running"
#: It waits for messages. Ranks tell it of a thread; as the state of a rank that is `RUNNING`.
IDLE = "idle"
#: Its process is not born yet; told apart from `RUNNING` only where memory is shown.
STARTING = "starting"

#: The words of the grammar. Of several actors of a rank, the one in the first of these states tells what the rank does.
WORST_FIRST = (DEAD, NOT_ANSWERING, POST_MORTEM, STOPPED, BLOCKED, RUNNING)
#: Those of a rank that answers, and whose endpoint does not go on.
STANDING = (BLOCKED, STOPPED)

_SILENCE = {
    "stopped": "its process was stopped by a signal (SIGCONT resumes it)",
    "busy": "C code holds its GIL",
    "host": "the agent of its host does not answer",
}


def silence(state: str) -> str:
    """Return why a rank does not answer, in words.

    Args:
        state: As in `meshrt.hooks.snapshot.Silent`; "" where nothing is known.
    """
    return _SILENCE.get(state, "no answer in time")
