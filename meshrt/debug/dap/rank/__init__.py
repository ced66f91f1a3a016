"""In a rank: what is between the tree and debugpy's engine.

`ide`
    the IDE that has this rank, if one does
`pump`, `passing`, `pause`, `places`, `goodbye`
    its thread: messages to the engine and back, and what they say: what stands, what is to pause, what is in the way
`raisings`
    conditions and log points that raise, counted
`channel`
    what that IDE has to itself, as one that is lost may leave the engine to another one: numbers, and what it is sent
"""

from __future__ import annotations

__all__: list[str] = []
