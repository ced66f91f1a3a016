"""Which ranks have how much memory, and which variables hold it: a plug-in.

`meshrt.memory.rank` is loaded in ranks, and `meshrt.memory.root` in the root, by the first question. What is asked of
whom stands in `root`, how variables are counted in `walk` and `sizing`, the document that comes of it in `document`.

``meshrt.memory()`` asks from the script: this package, which has that name, can be called (`meshrt.memory.api.memory`).
Were it a function beside the package, what was imported last would decide which of them the name stands for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["memory"]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from meshrt.memory.api import memory  # start-up: only the script asks

        return memory(*args, **kwargs)


memory = sys.modules[__name__]
memory.__class__ = _Callable
