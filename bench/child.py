"""The fresh process of one measurement: ``python -m bench.child PEER SCENARIO RANKS QUICK RESULT``.

It imports as little as it can, for its own start-up is part of what ``cold`` measures, the same for
every contestant.
"""

import sys
from importlib import import_module

from bench.peers.protocol import Peer
from bench.scenarios import SCENARIOS, Settings, publish

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run one scenario with one contestant and write its values into the file ``RESULT``."""
    name, scenario, ranks, quick, result = arguments
    peer: Peer = import_module(f"bench.peers.{name}").PEER
    settings = Settings(int(ranks), quick == "1", result)
    publish(peer.run(SCENARIOS[scenario](peer, settings)), result)


if __name__ == "__main__":
    main(sys.argv[1:])
