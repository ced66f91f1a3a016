"""debugpy's engine in this process. Only this package knows debugpy, pydevd and their private names.

`engine`
    starts it, stops it, has it stop threads, and tells where they are stopped
`loading`, `patches`, `untraced`
    how it is imported, what of it is replaced, and what it is not to see
`evaluations`, `expressions`
    what it runs for an IDE, and how that is ended; what breakpoints evaluate, and that it raises
`watched`, `users_traces`, `live_threads`
    what it would leave behind: code objects, trace functions of the user's, threads that have ended

``tests/dap/test_engine.py`` holds the names against the release that is pinned in ``pyproject.toml``.
"""

from __future__ import annotations

__all__: list[str] = []
