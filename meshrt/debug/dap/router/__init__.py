"""The process that IDEs connect to.

`command`, `serving`, `launch_json`
    ``meshrt dap``, what it does at a port or a socket, and the entry that it writes for VS Code
`stdio`
    ``meshrt dap --stdio``: what an IDE starts for each session
`listening`, `admission`, `greeting`
    the sockets, whose connections are taken, and what is said first
`router`, `connection`, `configuration`
    who connects, with what, and which session that begins
`program`, `ranks`, `channels`
    the way to the program, and texts that only it has; the ranks as they are seen here; an engine each, and questions
    to many of them
`requests`
    what an IDE may ask, and what each kind of session does with it
`view`, `mesh_view`, `rank_view`, `threads_view`
    the sessions: of the mesh, of one rank, and the one in which ranks are threads
`members`, `joining`, `settings`, `rank_threads`, `thread_events`, `row_events`, `ids`
    the parts of that last one: its ranks, what is set in all of them, how requests reach them, and what the IDE is
    told, in its numbers
`console`, `console_words`, `told_once`
    of all sessions: the debug console of the mesh and its help, and what is told once for all ranks
"""

from __future__ import annotations

__all__: list[str] = []
