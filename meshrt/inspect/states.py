"""The states of ranks, in the order in which a person should look at them. The words are those of the grammar."""

from __future__ import annotations

__all__ = ["STANDING", "WORST_FIRST"]

#: Of several actors of a rank, the one in the first of these states tells what the rank does.
WORST_FIRST = ("dead", "not-answering", "post-mortem", "stopped", "blocked", "running")
#: Those of a rank that answers, and whose endpoint stands still.
STANDING = ("blocked", "stopped")
