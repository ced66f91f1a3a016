"""meshrt between torchrun and the script: the words that are put there."""

from typing import Any

from bench.peers.protocol import Peer

__all__ = ["PEER", "WORDS"]

WORDS = ("-m", "meshrt", "run")


async def start(_ranks: int) -> Any:
    """Return the words; torchrun starts the ranks."""
    return WORDS


PEER = Peer(start)
