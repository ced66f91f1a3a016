"""The base class of actors."""

from __future__ import annotations

import logging
from functools import cached_property

__all__ = ["Actor"]


class Actor:
    """Subclass it, mark methods with ``@endpoint``, and spawn it on a mesh: one instance per rank.

    ``__init__`` runs on the rank. One message is served at a time, in the order in which one caller sent them. An
    optional ``__cleanup__(self, exc)`` (sync or async) runs when the actor is stopped; ``exc`` is None then.

    What an endpoint raises, ``SystemExit`` among it, is its caller's error, and the rank lives. ``sys.exit()`` in a
    task that an endpoint has started ends the process, as asyncio has it: what runs on the rank is ended, its actors
    clean up, and every caller gets a `ProcessDied` that says so.
    """

    @cached_property
    def logger(self) -> logging.Logger:
        """A logger named after the class."""
        return logging.getLogger(type(self).__name__)
