"""How much memory ranks have, and which variables hold it: a plug-in.

The first request loads `meshrt.memory.rank` in ranks and `meshrt.memory.root` in the root. `root` says where each fact
comes from, `walk` and `sizing` how variables are counted, `document` what the resulting document holds.

``meshrt.memory()`` asks from the script: this package itself can be called (`meshrt.memory.api.memory`). If it were a
function beside the package, the meaning of the name would depend on the order of imports.
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
