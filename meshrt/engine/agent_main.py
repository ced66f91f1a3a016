"""The program that a host agent is.

``python agent_main.py DESCRIPTOR``: the inherited end of its control link. ``python agent_main.py -``: an invitation to
a program on another machine is on standard input. A further word is what the agent says of itself, see
`meshrt.engine.launch`: it is a process of a launcher then, to which its exit status says how the program has ended.
"""

import gc
import runpy
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    if sys.argv[1] == "-":
        # By its path, and before meshrt is imported, which an older Python could not.
        problem = runpy.run_path(str(Path(__file__).with_name("interpreter.py")))["unfit"]()
        if problem:
            sys.exit(problem)
    # Started by path, so that it finds the package that the root uses, wherever that came from; in the place of the
    # directory of this file.
    sys.path[: 0 if sys.flags.safe_path else 1] = [str(Path(__file__).resolve().parents[2])]
    sys.modules["meshrt.engine.agent_main"] = sys.modules["__main__"]

from meshrt.actor.exiting import note_modules
from meshrt.actor.process import rank_main
from meshrt.engine import start as _start  # noqa: F401 - modules of actors import `proc_mesh`, too: loaded once, here
from meshrt.errors import UsageError
from meshrt.hooks.plugins import PULSE_PLUGINS, import_plugins
from meshrt.host.agent import serve
from meshrt.mesh import proc_mesh as _handles  # noqa: F401 - ranks get handles: the same
from meshrt.mesh import program as _program  # noqa: F401 - and `shutdown_context`
from meshrt.transport.link import Link
from meshrt.wire.codec import warm_up
from meshrt.wire.frames import control_decoder

__all__ = ["main"]


def main() -> None:
    """Be the agent."""
    warm_up()
    import_plugins(PULSE_PLUGINS)
    note_modules()
    gc.freeze()  # a collection would write to every object, and so copy all memory that is shared with ranks
    if sys.argv[1] != "-":
        serve(Link(socket.socket(fileno=int(sys.argv[1])), control_decoder()), rank_main)
    from meshrt.engine.joining import join  # start-up: `ssl`, which an agent on the script's machine does not need

    who = "".join(sys.argv[2:])
    try:
        link, leftover = join(sys.stdin.buffer.read(), who)
    except (UsageError, ConnectionError) as error:
        sys.exit(str(error))
    serve(link, rank_main, leftover, tells_of_end=bool(who))


if __name__ == "__main__":
    main()
