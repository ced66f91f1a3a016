"""The program that a host agent is: ``python agent_main.py DESCRIPTOR`` (the inherited end of its control link)."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Started by path, so that it finds the package that the root uses, wherever that came from.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.modules["meshrt.engine.agent_main"] = sys.modules["__main__"]

from meshrt.actor.process import rank_main
from meshrt.hooks.plugins import PULSE_PLUGINS, import_plugins
from meshrt.host.agent import serve
from meshrt.mesh import proc_mesh as _handles  # noqa: F401 - ranks get handles: load what they are once, here
from meshrt.wire.codec import warm_up

__all__ = ["main"]


def main() -> None:
    """Be the agent."""
    warm_up()
    import_plugins(PULSE_PLUGINS)
    serve(int(sys.argv[1]), rank_main)


if __name__ == "__main__":
    main()
