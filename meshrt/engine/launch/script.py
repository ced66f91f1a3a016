"""A script run in this process as ``python SCRIPT ARGUMENT ...`` does: by a path, or with ``-m`` by a module's name.

A path may be that of a directory or an archive that has a ``__main__.py``.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from meshrt.errors import UsageError
from meshrt.uncaught import show_uncaught

__all__ = ["Script"]


class Script:
    """A script that is found, and not run yet.

    Args:
        words: Its path, or ``-m`` and a module, and its arguments.
    Raises:
        UsageError: There is none.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._spec: ModuleSpec | None = None
        self._directory = os.getcwd()
        if words[0] == "-m":
            if len(words) < 2:
                raise UsageError("-m: expected the name of a module")
            _put_first(self._directory)
            self._spec = _spec_of(words[1])
            self._file = str(self._spec.origin)
            self._arguments = [self._file, *words[2:]]
        else:
            self._file = os.path.join(self._directory, words[0])
            self._arguments = list(words)
            self._directory = str(Path(self._file).resolve().parent)
            if not os.path.exists(self._file):
                raise UsageError(f"there is no script {words[0]}")
            self._spec = PathFinder.find_spec("__main__", [self._file])
            if self._spec is not None:
                self._directory, self._file = self._file, str(self._spec.origin)
            elif not os.path.isfile(self._file):
                raise UsageError(f"{words[0]} is not a script, and has no __main__.py")

    def run(self) -> int:
        """Run it; returns the exit status. An error is shown as Python shows it.

        Raises:
            SystemExit: Of the script.
        """
        return self.guard(self.execute)

    def guard(self, function: Callable[[], object]) -> int:
        """Call ``function`` as the script that it is part of; see `run`."""
        try:
            function()
        except SystemExit:
            raise
        except BaseException as error:
            show_uncaught(error)
            return 1
        return 0

    def execute(self) -> None:
        """Run it. Raises what it raises."""
        sys.argv[:] = self._arguments
        _put_first(self._directory)
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        spec = self._spec
        kind = SourcelessFileLoader if self._file.endswith(".pyc") else SourceFileLoader
        loader = spec.loader if spec is not None else kind("__main__", self._file)
        main.__dict__.update(
            __builtins__=builtins,
            __file__=self._file,
            __spec__=spec,
            __loader__=loader,
            __cached__=spec.cached if spec is not None else None,
            __package__=spec.parent if spec is not None else None,
        )
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        exec(self._code(loader), main.__dict__)

    def _code(self, loader: object) -> CodeType:
        if self._spec is not None or isinstance(loader, SourcelessFileLoader):
            name = self._spec.name if self._spec is not None else "__main__"
            code = loader.get_code(name)  # type: ignore[attr-defined]  # `_spec_of` has checked it
            if not isinstance(code, CodeType):
                raise ImportError(f"{name} has no code")
            return code
        return compile(Path(self._file).read_bytes(), self._file, "exec", dont_inherit=True)


def _put_first(directory: str) -> None:
    """Have Python look for modules of the script, in place of those of this command."""
    if sys.flags.safe_path or sys.path[:1] == [directory]:
        return
    sys.path[:1] = [directory]


def _spec_of(name: str) -> ModuleSpec:
    """Return what is run for ``-m name``: a package's ``__main__``. Raises UsageError."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"there is no module {name}: {error}") from None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise UsageError(f"there is no module {name}, or it cannot be run")
    return spec
