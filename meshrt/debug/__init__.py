"""The debugger: a plug-in of the runtime, which never imports it.

Rank side
    `rank` (loaded by the first ``breakpoint()``), `session`, `rank_pdb`, `stepping`, `console`, `sources`
Root side
    `broker` (loaded by the first stop, or by the first terminal), `sessions`, `targets`, `cast`, `notices`
Terminal side
    `entry` and ``__main__``, `repl`, `attached`, `commands`, `client`, `terminal`, `render`

`protocol` holds the names and the records that these three share.
"""

from __future__ import annotations

__all__: list[str] = []
