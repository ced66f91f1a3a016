"""The fresh process of one measurement: ``python -m bench.child PEER SCENARIO RANKS QUICK RESULT``.

It imports as little as it can, for its own start-up is part of what ``cold`` measures, the same for
every contestant.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.peers import ELSEWHERE
from bench.scenarios import Settings, publish

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run one scenario with one contestant and write its values into the file ``RESULT``."""
    name, scenario, ranks, quick, result = arguments
    package = ELSEWHERE.get(scenario, "bench")
    peer: Any = import_module(f"{package}.peers.{name}").PEER
    run: Callable[[Any, Settings], Any] = import_module(f"{package}.scenarios").SCENARIOS[scenario]
    settings = Settings(int(ranks), quick == "1", result)
    publish(peer.run(run(peer, settings)), result)


if __name__ == "__main__":
    main(sys.argv[1:])
