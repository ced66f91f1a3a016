"""What a host agent is asked to start, in as many messages as it takes: none is longer than a control link carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshrt.errors import ProtocolError, UsageError
from meshrt.wire.frames import CONTROL_MAX
from meshrt.wire.messages import control_frame

__all__ = ["spawn_frames"]


def spawn_frames(
    common: Mapping[str, Any], ranks: Sequence[int], rank_env: Mapping[int, Mapping[str, str]]
) -> list[bytes]:
    """Return the messages that ask an agent for some ranks of a mesh, to be sent in one piece.

    One process preloads modules for all of them: the agent waits for the last message then (``more`` is false in it).

    Args:
        common: What is the same for all; ``preload`` is among it.
        ranks: Base ranks.
        rank_env: The environment of those that have one of their own.
    Raises:
        UsageError: What a single rank is told does not fit.
    """
    parts = [ranks] if ranks else []
    frames: list[bytes] = []
    while parts:
        part = parts.pop(0)
        env = {str(rank): dict(rank_env[rank]) for rank in part if rank in rank_env}
        message = {**common, "ranks": list(part), "env": env, "more": bool(common["preload"] and parts)}
        try:
            frames.append(control_frame(message))
        except ProtocolError as error:
            if len(part) == 1:
                raise UsageError(
                    f"rank {part[0]} cannot be told its environment, what to preload and its breakpoints: "
                    f"{error}, the limit is {CONTROL_MAX} bytes"
                ) from None
            half = len(part) // 2
            parts[:0] = [part[:half], part[half:]]
    return frames
