"""An IDE on a whole mesh, through one port: the Debug Adapter Protocol (DAP), with debugpy as the engine in each rank.

::

    IDE --TCP or unix socket--> router (`meshrt dap`) --terminal's socket--> root --tree--> rank --socket pair--> engine

`router`
    the process that listens, and all that it shows to an IDE
`root`, `starting`
    in the root: which IDE has which rank, and what goes between them; a router that the program starts itself
`rank`
    in a rank, loaded when an IDE attaches to it: what comes over the tree goes to debugpy's engine, and back
`engine`
    debugpy's engine: all that knows its names, and what it leaves as it was
`wire`, `stops`, `shown`
    shared by them: frames of the protocol, which threads are stopped, how much of a value is shown

No rank opens a port: the engine gets one end of a socket pair.
"""

from __future__ import annotations

__all__: list[str] = []
