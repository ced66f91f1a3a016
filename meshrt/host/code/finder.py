"""The finder of modules that are the script's: in processes of ranks on other machines.

It is the first one on ``sys.meta_path``, and asks those behind it before it asks the root. So it is the last one where
something is missing, and sees what they have found, too: a file that is older than the root's, or a library that has
the name of a module of the script. **What runs is what the root has**: a file is loaded here only if it has the same
path and the same bytes there.

Not asked for: modules of Python itself and of meshrt, modules of packages that are installed, and what the thread
imports that serves the root, which must not wait.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.host.code.absent import note_absent
from meshrt.host.code.asking import Asks, NoAnswerError
from meshrt.transport.threads import RuntimeThread
from meshrt.wire.code import Code, digest_of_file

if TYPE_CHECKING:  # start-up: importlib.abc loads a dozen modules, for base classes alone
    from importlib.abc import InspectLoader, MetaPathFinder
    from importlib.resources.abc import TraversableResources
else:
    InspectLoader = MetaPathFinder = object

__all__ = ["RootFinder", "RootLoader", "compared", "may_ask", "show_text"]

_PYTHON = frozenset(sys.stdlib_module_names) | set(sys.builtin_module_names)
_RUNTIME = "meshrt"
#: Files that are the same here as at the root.
compared: set[str] = set()


class RootFinder(MetaPathFinder):
    """See above.

    Args:
        asker: Asks the root.
        agent_pid: The process that never asks: the one that passes questions on.
        host: The name of this host.
    """

    def __init__(self, asker: Asks, agent_pid: int, host: str) -> None:
        self._asker = asker
        self._agent_pid = agent_pid
        self._host = host

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what is loaded for a name; None: the finders behind this one say that.

        Raises:
            ImportError: The root does not answer.
        """
        if not may_ask(self._agent_pid) or _belongs_to_python(fullname) or _is_installed(path):
            return None
        local = self._local(fullname, path, target)
        known = _digest(local)
        try:
            code = self._asker.ask(fullname, known=known)
            if known and code.digest == known and (local is None or code.path != local.origin):
                code = self._asker.ask(fullname)
        except NoAnswerError as error:
            raise ImportError(f"module {fullname} cannot be fetched: {error}", name=fullname) from None
        match code.kind:
            case "source" if code.data is not None:
                return self._spec(fullname, code)
            case "source":
                compared.add(code.path)
            case "namespace":
                return _namespace(fullname, code, local)
            case "refused" if local is None:
                return ModuleSpec(
                    fullname, _Refused(f"module {fullname} cannot be fetched by {self._host}: {code.why}")
                )
            case "installed" if local is None:
                note_absent(fullname, f"host {self._host} has no such module; the script's machine has {code.path}")
        return local

    def _local(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """Return what the finders behind this one say."""
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        for finder in behind:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _spec(self, fullname: str, code: Code) -> ModuleSpec | None:
        loader = RootLoader(fullname, code, self._asker)
        places = None if code.places is None else list(code.places)
        return importlib.util.spec_from_file_location(
            fullname, code.path, loader=loader, submodule_search_locations=places
        )


class RootLoader(SourceFileLoader):
    """Loads one module from the text that has come.

    Args:
        fullname: Of the module.
        code: Its path, and its text.
        asker: Asks for files of its package.
    """

    def __init__(self, fullname: str, code: Code, asker: Asks) -> None:
        super().__init__(fullname, code.path)
        self._data = code.data or b""
        self._package = fullname if code.places is not None else fullname.rpartition(".")[0]
        self._asker = asker

    def exec_module(self, module: ModuleType) -> None:
        """Run the module. Its file is shown as the root has it, whatever is at that path here."""
        show_text(self.path, self._data)
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        """Return its code. Raises SyntaxError."""
        code: CodeType = self.source_to_code(self._data, self.path)
        return code

    def get_data(self, path: str) -> bytes:
        """Return its text, or a file of its package, as `pkgutil.get_data` asks for it. Raises OSError."""
        if path == self.path:
            return self._data
        from meshrt.host.code.resources import read_file  # start-up: few programs have files in packages

        return read_file(self._asker, self._package, os.path.relpath(path, os.path.dirname(self.path)))

    def get_resource_reader(  # type: ignore[override] # its base class is for files
        self, fullname: str
    ) -> TraversableResources | None:
        """Return what `importlib.resources` reads files of the package with."""
        if not self.is_package(fullname):
            return None
        from meshrt.host.code.resources import PackageFiles  # start-up: as above

        return PackageFiles(self._asker, fullname)


class _Refused(InspectLoader):
    """A module that the root has, and cannot send. It is found: what looks for it by `find_spec` raises nothing."""

    def __init__(self, why: str) -> None:
        self._why = why

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Raise ImportError."""
        raise ImportError(self._why, name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Is not reached."""

    def get_source(self, fullname: str) -> None:
        """There is none."""


def may_ask(agent_pid: int) -> bool:
    """Whether the calling thread may wait for an answer: not in the agent, and not while it serves the root."""
    return os.getpid() != agent_pid and not isinstance(threading.current_thread(), RuntimeThread)


def show_text(path: str, data: bytes) -> None:
    """Have tracebacks and debuggers show this text for a file, whatever is at its path here."""
    try:
        text = importlib.util.decode_source(data)
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode(errors="replace")
    # Without a time: the file is not compared with this.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def _belongs_to_python(fullname: str) -> bool:
    top = fullname.partition(".")[0]
    return top in _PYTHON or top in (_RUNTIME, "__main__")


def _is_installed(places: Iterable[str] | None) -> bool:
    """Whether modules at these places come with a library, or with the runtime."""
    return places is not None and all(is_library_file(os.path.join(place, "")) for place in places)


def _digest(local: ModuleSpec | None) -> str:
    """Return the digest of a source file that is here; "": there is none, or it is a library's."""
    path = None if local is None or not local.has_location else local.origin
    if path is None or is_library_file(path) or path.startswith(RUNTIME_FILES):
        return ""
    return digest_of_file(path)


def _namespace(fullname: str, code: Code, local: ModuleSpec | None) -> ModuleSpec:
    """Return a package without a file: parts of it may be here, too."""
    spec = ModuleSpec(fullname, None, is_package=True)
    here = [] if local is None or local.origin is not None else list(local.submodule_search_locations or ())
    spec.submodule_search_locations = [*here, *(place for place in code.places or () if place not in here)]
    return spec
