"""An estimate of what a variable holds whose walk was ended by its budget.

What was walked is scaled by the containers of known length. Memory behind arrays is scaled by what the arrays show:
many may show parts of one memory, which was counted with the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshrt.memory.contents import Source

__all__ = ["Part", "estimate"]


@dataclass(slots=True)
class Part:
    """Objects that are still to be looked at.

    Attributes:
        holder: The variable that has reached their referrer.
        alone: ``getrefcount`` of an object here that has no other referrer; 0: an object may come twice all the same.
        total: Number of objects; 0: not known.
        below: Whether they own, or lead to, the memory that arrays show.
        pending: Bytes that these arrays show.
        before, shown: Bytes that had been counted beside the memory of arrays, and bytes that arrays had shown, before
            the first of the objects was looked at.
        done: Number of objects that were looked at.
    """

    source: Source
    holder: int
    alone: int
    total: int
    below: bool
    pending: float
    before: int
    shown: int
    done: int = 0

    def left(self) -> float:
        """Return how many objects are left for each that was looked at; 0 if that is not known."""
        return (self.total - self.done) / self.done if self.total > self.done > 0 else 0.0

    def not_walked(self) -> float:
        """Return the part of `pending` that belongs to objects that were not looked at."""
        return self.pending * (1 - self.done / self.total if self.total else not self.done)


def estimate(parts: Sequence[Part], *, own: int, behind: int, shown: int) -> int | None:
    """Return the bytes of the whole; None: nothing is known of what is left.

    Objects at the same level in containers of unknown length are left out.

    Args:
        parts: What is left, the outermost first.
        own: Bytes that were counted beside the memory of arrays.
        behind: ... in the memory of arrays, on all devices.
        shown: Bytes of arrays as their shapes tell them.
    """
    own_left, shown_left, pending = 0.0, 0.0, 0.0
    for part in reversed(parts):  # what is left inside of an object belongs to the object
        own_left += (own - part.before + own_left) * part.left()
        shown_left += (shown - part.shown + shown_left) * part.left()
        pending += part.not_walked()
    if not (own_left or shown_left or pending):
        return None
    walked = shown - pending
    share = min(1.0, behind / walked) if walked > 0 else 1.0
    return round(own + own_left + max(behind, share * (shown + shown_left)))
