"""The ranks of a running program, again and again: what they use, what they do, how much waits for them. A plug-in.

`meshrt.top.rank` is loaded in ranks, and `meshrt.top.root` in the root, by the first question; `meshrt.top.model` makes
rows of two answers and the time between them. `meshrt.top.screen` shows them, and needs textual; nothing else does.
"""

__all__: list[str] = []
