"""The levels of the script's loggers: ranks are told them at their birth, and when they have changed."""

from __future__ import annotations

import logging

from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.wire.operations import LogLevels

__all__ = ["ScriptLevels"]

#: So many loggers with a level of their own, with names of so many characters.
_COUNT = 1000
_NAME_MAX = 200


class ScriptLevels:
    """Compares the levels with those that ranks were told. Python tells nobody of a change.

    Args:
        registry, services: Those of the root.
    """

    def __init__(self, registry: Registry, services: Services) -> None:
        self._registry = registry
        self._services = services
        self._told = LogLevels({})
        #: A mesh has been told others.
        self._differs = False

    def now(self) -> LogLevels:
        """Return the levels for new ranks. Any thread."""
        levels = _levels()
        if levels != self._told:
            self._differs = True
        return levels

    def look(self) -> None:
        """Tell ranks if something has changed. On the loop, once a second."""
        levels = _levels()
        if levels == self._told and not self._differs:
            return
        self._told, self._differs = levels, False
        for record in self._registry.running():
            if record.prefixed:
                for rank in record.alive():
                    self._services.tell_rank(record.mesh_id, rank, levels)


def _levels() -> LogLevels:
    manager = logging.root.manager
    found = {"": logging.root.level}
    for name, logger in list(manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level and len(name) <= _NAME_MAX and len(found) < _COUNT:
            found[name] = logger.level
    return LogLevels(found, manager.disable)
