"""``python -m bench.debugger.person PEER ACT ADDRESS RANKS QUICK FOLDER RESULT``: measure one act."""

import sys
from collections.abc import Callable
from importlib import import_module

from bench.debugger.person.acts import Scene
from bench.scenarios import Settings, Values, publish

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Measure one act of one contestant and write its values into the file ``RESULT``."""
    name, act, address, ranks, quick, folder, result = arguments
    acts: dict[str, Callable[[Scene], Values]] = import_module(f"bench.debugger.person.{name}").ACTS
    settings = Settings(int(ranks), quick == "1", result)
    publish(acts[act](Scene(address, settings, folder)), result)


if __name__ == "__main__":
    main(sys.argv[1:])
