"""The base class of actors."""

from __future__ import annotations

import logging
from functools import cached_property

__all__ = ["Actor"]


class Actor:
    """Subclass it, mark methods with ``@endpoint``, and spawn it on a mesh: one instance per rank.

    ``__init__`` runs on the rank. One message is served at a time, in the order in which one caller sent them.

    An optional ``__cleanup__(self, exc)`` (sync or async) runs when the actor ends. ``exc`` is None if it was stopped;
    else it is the error that is the reason: the one that has ended its block, the script, or its rank.

    An optional ``__supervise__(self, failure)`` (sync or async) decides about a `MeshFailure` of what this actor has
    spawned. True: it is handled. Otherwise, or if it raises or takes longer than 10 s, the owner of this actor is
    asked, and at last the script. It runs between two messages, or when the message that is served waits in a
    ``get()``; on an actor with an event loop in a task of its own.

    An exception of an endpoint, also ``SystemExit``, is its caller's error, and the rank lives. ``sys.exit()`` in a
    task that an endpoint has started ends the process, as in asyncio: running calls are ended, the actors of the rank
    clean up, and every caller gets a `ProcessDied` that says so.
    """

    @cached_property
    def logger(self) -> logging.Logger:
        """A logger named after the class."""
        return logging.getLogger(type(self).__name__)
