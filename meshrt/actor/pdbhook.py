"""``pdb.set_trace()`` in a rank means ``breakpoint()``: a rank has no terminal that plain pdb could use.

pdb is not imported for that; its function is replaced when user code imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # start-up: importlib.abc loads a dozen modules, for base classes alone
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object

__all__ = ["install", "stop_in_pdb"]


class _PdbLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.__dict__["set_trace"] = _set_trace


class _PdbFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pdb":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _PdbLoader(spec.loader)
        return spec


def _set_trace(*, header: str | None = None, **_ignored: object) -> None:
    """Stop here, as ``breakpoint()`` does."""
    if sys.breakpointhook is sys.__breakpointhook__:
        # A forked child is not a rank, and Python's own hook would come back here.
        stop_in_pdb(header, sys._getframe(1))
        return
    sys.breakpointhook(header=header)


def stop_in_pdb(header: str | None, frame: FrameType) -> None:
    """Stop in a frame, in Python's own debugger, after a line that it shows first."""
    import pdb  # start-up: a rank does not need it here

    debugger = pdb.Pdb()
    if header:
        debugger.message(header)
    debugger.set_trace(frame)


def install() -> None:
    """Do it for this process."""
    if "pdb" in sys.modules:
        sys.modules["pdb"].__dict__["set_trace"] = _set_trace
    else:
        sys.meta_path.insert(0, _PdbFinder())
