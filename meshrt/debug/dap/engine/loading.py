"""debugpy's engine, pydevd, in this process: imported once, and changed where it does not suit a rank (`patches`).

Importing it costs a tenth of a second of processor time; it traces nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from meshrt.debug.dap.engine.patches import patch, replace_idle, watch
from meshrt.debug.dap.engine.pydevd_types import ApiClass, Pydevd
from meshrt.debug.dap.engine.watched import WatchedCode
from meshrt.errors import MeshError
from meshrt.show.installing import install_command, install_extra

__all__ = ["KNOWN", "TRACES", "load", "loaded", "watched_code"]

#: The release whose private names these are; a later one may have others.
KNOWN = "1.8.22"
#: Whether the engine uses ``sys.settrace``; otherwise it uses ``sys.monitoring``.
TRACES = sys.version_info < (3, 12)
#: What pydevd adds to ``builtins``.
_CONSOLE_NAMES = ("runfile", "execfile")
#: What it reads from the environment while it is imported: no warning about frozen modules on the user's terminal, no
#: replacement of frame evaluation.
_ENVIRONMENT = {"PYDEVD_DISABLE_FILE_VALIDATION": "1", "PYDEVD_USE_FRAME_EVAL": "NO"}


@dataclass(slots=True)
class _Loaded:
    """pydevd, once all of it is imported and changed, and what it watches."""

    pydevd: Pydevd | None = None
    watched: WatchedCode | None = None


_loaded = _Loaded()


def loaded() -> Pydevd | None:
    """Return pydevd; None if it is not imported completely yet, and nothing is traced."""
    return _loaded.pydevd


def watched_code() -> WatchedCode | None:
    """Return the code that the engine watches; None if it traces instead, or is not loaded."""
    return _loaded.watched


def load() -> Pydevd:
    """Return pydevd. Raises MeshError if debugpy is not installed here, or its release is not supported."""
    if _loaded.pydevd is not None:
        return _loaded.pydevd
    # By name, in a rank, once an IDE attaches: the runtime does without debugpy, and type checkers do not see pydevd.
    hook = sys.breakpointhook
    try:
        with _environment(_ENVIRONMENT):
            importlib.import_module("debugpy._vendored.force_pydevd")  # makes pydevd importable
            pydevd = cast(Pydevd, importlib.import_module("pydevd"))
            api = importlib.import_module("_pydevd_bundle.pydevd_api")
    except ModuleNotFoundError as error:
        raise MeshError(
            f"the ranks' Python has no debugpy ({error}); to install it: {install_extra('dap', 'debugpy')}"
        ) from error
    finally:
        sys.breakpointhook = hook
        for name in _CONSOLE_NAMES:  # for its own console; a program is not to find them
            vars(builtins).pop(name, None)
    try:
        patch(pydevd, cast(ApiClass, api.PyDevdAPI))
        if TRACES:
            replace_idle(pydevd)
        else:
            _loaded.watched = watch(pydevd)
    except (AttributeError, ImportError) as error:
        found = sys.modules["debugpy"].__version__
        raise MeshError(
            f"debugpy {found} is not compatible with this meshrt ({error}); "
            f"to install a compatible version: {install_command(f'debugpy=={KNOWN}')}"
        ) from error
    _loaded.pydevd = pydevd
    return pydevd


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
