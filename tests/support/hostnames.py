"""Names of the hosts of meshes that name no engine: this machine, or two others (`tests.hosts`)."""

from __future__ import annotations

import json
import os
import socket

from tests.hosts.startup.sitecustomize import COMMANDS

__all__ = ["HOST_NAMES"]

#: In the order in which meshes have them.
HOST_NAMES: tuple[str, ...] = tuple(json.loads(os.environ.get(COMMANDS, "{}"))) or (socket.gethostname(),)
