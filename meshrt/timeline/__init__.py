"""Recording what endpoints do when, on all ranks, while somebody asks for it: ``meshrt timeline``.

A plug-in. `meshrt.timeline.rank` keeps the spans of one rank (`meshrt.timeline.recorder`), `meshrt.timeline.root` asks
the ranks for them, `meshrt.timeline.command` collects them (`meshrt.timeline.collected`) and writes them as trace
events (`meshrt.timeline.trace`). A rank that nobody records has none of it, and its endpoints pay nothing.

Times are monotonic nanoseconds, one clock for all processes of a host.
"""

__all__: list[str] = []
