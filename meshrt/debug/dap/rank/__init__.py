"""In a rank: the path between the tree and debugpy's engine.

`ide`
    the IDE that has this rank, if one does
`pump`, `passing`, `places`, `goodbye`
    its thread: messages to the engine and back, and what they mean: stops, pauses, evaluations to interrupt
`raisings`
    conditions and log points that raise, counted
`channel`
    what that IDE has to itself, as one that is lost may leave the engine to another one: numbers, and what it is sent
"""

from __future__ import annotations

__all__: list[str] = []
