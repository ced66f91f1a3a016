"""The debugger: a plug-in of the runtime, which never imports it. Each kind of process has a folder:

`rank`
    in a rank: what ``breakpoint()``, an exception or a request of a terminal does (loaded by the first of them)
`broker`
    in the root: which ranks are stopped, and what goes between ranks and terminals (loaded by the first stop, or by
    the first terminal); `meshrt.program` resolves which ranks a line means
`prompt`
    at a terminal: lines in, text or JSON out

`protocol` holds the names that these three share, `operations` and `rank_operations` what they ask and report,
`stepping` tells the user's stack frames from the others, `dumpfile` writes and reads the files about failures of
endpoints, `advice` says what stops an actor.
"""

from __future__ import annotations

__all__: list[str] = []
