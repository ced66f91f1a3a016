"""A message to a port beside a broadcast to one rank, from the call to what serves it."""

from collections.abc import Callable, Coroutine
from typing import Any

from bench.peers.protocol import Peer
from bench.scenarios import Settings, Values

__all__ = ["SCENARIOS"]

MESSAGES = 2000


async def ports(peer: Peer, settings: Settings) -> Values:
    """Both in one program, turn by turn."""
    counting: Any = await peer.start(1)
    counting.ratio(MESSAGES, 1)
    found = counting.ratio(MESSAGES, settings.repeats(20))
    counting.stop()
    return {"port_send": found}


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {"ports": ports}
