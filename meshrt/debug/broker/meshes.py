"""Root side: what is known of one running mesh, for states and for selections alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshrt.selection import Shape

__all__ = ["MeshFacts"]


@dataclass(frozen=True, slots=True)
class MeshFacts:
    """What is known of one running mesh."""

    mesh_id: str
    name: str
    shape: Shape
    hosts: dict[int, str]
    pids: dict[int, int]
    alive: tuple[int, ...]
    actors: tuple[str, ...]
    #: When it was asked for (epoch seconds).
    started: float = 0.0
    #: How and when (epoch seconds) ranks ended.
    gone: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    #: Ranks that live but do not answer: "stopped" or "busy", or "host": the agent of theirs does not.
    silent: Mapping[int, str] = field(default_factory=dict)
    silent_since: Mapping[int, float] = field(default_factory=dict)
    stopping: bool = False
