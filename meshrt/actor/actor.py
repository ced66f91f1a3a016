"""The base class of actors."""

from __future__ import annotations

import logging
from functools import cached_property

__all__ = ["Actor"]


class Actor:
    """Subclass it, mark methods with ``@endpoint``, and spawn it on a mesh: one instance per rank.

    ``__init__`` runs on the rank. One message is served at a time, in the order in which one caller sent them. An
    optional ``__cleanup__(self, exc)`` (sync or async) runs when the actor is stopped; ``exc`` is None then.
    """

    @cached_property
    def logger(self) -> logging.Logger:
        """A logger named after the class."""
        return logging.getLogger(type(self).__name__)
