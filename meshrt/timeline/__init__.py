"""Recording what endpoints do when, on all ranks, while a terminal asks for it: ``meshrt timeline``.

A plug-in. `meshrt.timeline.rank` keeps the spans of one rank (`meshrt.timeline.recorder`), `meshrt.timeline.root` asks
the ranks for them, `meshrt.timeline.command` collects them (`meshrt.timeline.collected`) and writes them as trace
events (`meshrt.timeline.trace`). A rank that is not recorded loads none of it, and its endpoints are not slowed down.

Times are monotonic nanoseconds, one clock for all processes of a host.
"""

__all__: list[str] = []
