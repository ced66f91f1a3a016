"""The ranks of a running program, watched: what they use, what they do, and how many messages wait. A plug-in.

The first request loads `meshrt.top.rank` in ranks and `meshrt.top.root` in the root. `meshrt.top.model` computes rows
from two answers and the time between them. `meshrt.top.screen` shows them, and needs textual; nothing else does.
"""

__all__: list[str] = []
