"""Ending a program by hand."""

from __future__ import annotations

from meshrt.mesh.root import shutdown

__all__ = ["shutdown_context"]


def shutdown_context(grace: float = 5.0) -> None:
    """Stop every mesh and end the agents and threads of meshrt. Twice is fine; at exit it happens by itself.

    Args:
        grace: Seconds that the ranks may take to finish what was sent to them.
    """
    shutdown(grace)
