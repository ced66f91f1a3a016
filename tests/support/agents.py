"""A host agent as an engine gives it to the root, without a process."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from meshrt.transport.link import Link
from meshrt.wire.addresses import HostAddress
from meshrt.wire.frames import control_decoder

__all__ = ["an_agent"]


def an_agent(sock: socket.socket, **more: Any) -> Any:
    """Return one whose link is on ``sock``; ``more``: what else it has."""
    link = Link(sock, control_decoder())
    given = {"host": "node1", "mark": "m", "machine": 0, "address": HostAddress(1, 4711, b"/d"), "stderr": None}
    return SimpleNamespace(**{**given, "link": link, **more})
