"""The actor of ``debugging.py``: every rank stops at a breakpoint."""

from meshrt import Actor, current_rank, endpoint


def share_of(total: int, rank: int) -> int:
    doubled = total * 2
    return doubled + rank


class DebugeeActor(Actor):
    @endpoint
    def to_debug(self) -> int:
        rank = current_rank().rank
        total = 50
        breakpoint()
        share = share_of(total, rank)
        return share
