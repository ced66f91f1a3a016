"""Plug-ins: their names, what loads them, and what the environment says of them.

The runtime never imports a plug-in. It knows each by a dotted name and loads it on first use; the plug-in then puts
functions into the hooks and the tables of the services.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshrt.hooks.services import RankServices, RootServices

__all__ = [
    "ASKED_FOR",
    "PLUGINS",
    "POST_MORTEM_VALUES",
    "PULSE_PLUGINS",
    "SWITCH_VALUES",
    "Plugins",
    "import_plugins",
    "plugin_of",
    "plugins",
]

#: Plug-in name -> (module loaded in a rank, module loaded in the root). Each module has ``load(services)``.
PLUGINS: dict[str, tuple[str, str]] = {
    "debug": ("meshrt.debug.rank.debugger", "meshrt.debug.broker.broker"),
    "inspect": ("meshrt.inspect.rank", "meshrt.inspect.root"),
    "memory": ("meshrt.memory.rank", "meshrt.memory.root"),
    "failure": ("meshrt.failure.rank", "meshrt.failure.root"),
    "timeline": ("meshrt.timeline.rank", "meshrt.timeline.root"),
    "dap": ("meshrt.debug.dap.rank.ide", "meshrt.debug.dap.root"),
    "collectives": ("meshrt.collectives.timeouts", "meshrt.collectives.timeouts"),
    "top": ("meshrt.top.rank", "meshrt.top.root"),
    "faults": ("meshrt.faults.rank", "meshrt.faults.root"),
}

#: Plug-ins that the root loads before its first mesh, if a variable of the environment asks for that.
ASKED_FOR: Mapping[str, str] = {"MESHRT_MEMORY_LIMIT": "memory", "MESHRT_DAP": "dap"}

#: Plug-ins that a rank loads at its first ping. Host agents import them, so that ranks are forked with them.
PULSE_PLUGINS: tuple[str, ...] = ("inspect", "collectives")

#: What the environment variable ``MESHRT_POST_MORTEM`` may say, and what ranks do then when an endpoint raises.
POST_MORTEM_VALUES: Mapping[str, str] = {"": "default", "0": "off", "off": "off", "1": "on", "on": "on", "dump": "dump"}

#: What an environment variable may say that switches something on or off; None: it is as without the variable.
SWITCH_VALUES: Mapping[str, bool | None] = {"": None, "0": False, "off": False, "1": True, "on": True}


class Plugins:
    """The plug-ins that this process has loaded."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, bool], RankServices | RootServices] = {}
        #: Held while a plug-in is loaded.
        self.loading = threading.RLock()

    def load(self, plugin: str, services: RankServices | RootServices, *, in_root: bool) -> bool:
        """Load a plug-in by its name, once per program. Returns False when there is no such plug-in. Any thread."""
        with self.loading:  # two actors of a rank may stop at once
            if self._loaded.get((plugin, in_root)) is services:
                return True
            if plugin not in PLUGINS:
                return False
            importlib.import_module(PLUGINS[plugin][in_root]).load(services)
            self._loaded[plugin, in_root] = services
            return True

    def clear(self) -> None:
        """Forget what was loaded: this process is a forked child and no part of the program any more."""
        self._loaded.clear()


def import_plugins(plugins: Iterable[str]) -> None:
    """Import what these plug-ins load in a rank; for a process that ranks are forked from."""
    for plugin in plugins:
        importlib.import_module(PLUGINS[plugin][0])


def plugin_of(name: str) -> str:
    """Return the plug-in that serves an operation or event: ``"debug.attach"`` -> ``"debug"``."""
    return name.partition(".")[0]


plugins = Plugins()
"""The plug-ins of this process."""

# A fork in the middle of loading would leave the child with locks that are never released.
os.register_at_fork(
    before=plugins.loading.acquire, after_in_parent=plugins.loading.release, after_in_child=plugins.loading.release
)
