"""The debugger: a plug-in of the runtime, which never imports it. A folder for each process that a part of it lives in:

`rank`
    what ``breakpoint()``, an exception or a question of a person does in a rank (loaded by the first of them)
`broker`
    in the root: who is stopped, and what goes between ranks and terminals (loaded by the first stop, or by the first
    terminal); `meshrt.program` knows which ranks are meant
`prompt`
    at a terminal: lines in, text or JSON out

`protocol` holds the names and the records that these three share, `stepping` tells the user's stack frames from the
others, `dumpfile` reads what a rank has written about a failure.
"""

from __future__ import annotations

__all__: list[str] = []
