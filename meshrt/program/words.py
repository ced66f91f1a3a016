"""The words for what ranks do; the words that a user types are those of the grammar of selections."""

from __future__ import annotations

from meshrt.hooks.facts import Unanswered

__all__ = [
    "BLOCKED",
    "DEAD",
    "IDLE",
    "NOT_ANSWERING",
    "NOT_RUNNING",
    "POST_MORTEM",
    "RUNNING",
    "STARTING",
    "STOPPED",
    "WORST_FIRST",
    "silence",
    "why_unanswered",
]

#: Its process has ended.
DEAD = "dead"
#: Its control thread is silent: the process was stopped by a signal, C code holds its GIL, or its host is silent.
NOT_ANSWERING = "not-answering"
#: It is stopped after an exception.
POST_MORTEM = "post-mortem"
#: It is at a prompt, at work on a line typed there, or stopped in an IDE.
STOPPED = "stopped"
#: Its endpoint has been at the same instruction for some time, without using processor time.
BLOCKED = "blocked"
#: Anything else.
RUNNING = "running"
#: It has waited for messages for some time.
IDLE = "idle"
#: Its process does not exist yet; distinct from `RUNNING` only where memory is shown.
STARTING = "starting"

#: The words of the grammar, in order: of several actors of a rank, the first one of these is the rank's state.
WORST_FIRST = (DEAD, NOT_ANSWERING, POST_MORTEM, STOPPED, BLOCKED, RUNNING, IDLE)
#: The states of a rank that answers but whose endpoint does not go on.
NOT_RUNNING = (BLOCKED, STOPPED)

_SILENCE = {
    "stopped": "its process was stopped by a signal (SIGCONT resumes it)",
    "busy": "C code holds its GIL",
    "late": "no answer in time: its process waits for processor time",
    "host": "the agent of its host does not answer",
}


def silence(state: str) -> str:
    """Return why a rank does not answer, in words.

    Args:
        state: As in `meshrt.hooks.snapshot.Silent`; "": not known.
    """
    return _SILENCE.get(state, "no answer in time")


def why_unanswered(group: Unanswered) -> str:
    """Return why ranks have not answered a question, in words: silence, a refusal, or how they have ended."""
    return group.why or silence(group.state)
