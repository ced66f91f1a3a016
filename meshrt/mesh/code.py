"""The code of the script, for ranks on other machines: what a module is, as this process would import it.

Nothing is imported for that, and no code of the modules runs. What is sent: source text of modules that the finders of
this process find outside of Python and of what is installed, and files of their packages. Names are checked: a module
is a dotted name, a file of a package is below its directory.
"""

from __future__ import annotations

import functools
import linecache
import os
import queue
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import PurePosixPath
from typing import Any

from meshrt.errors import ProtocolError
from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.mesh.run import working_directory
from meshrt.transport.threads import RuntimeThread
from meshrt.wire.code import PIECE, AskCode, Code, digest_of
from meshrt.wire.source import source_text

__all__ = ["CodeServer", "answer", "path_for_hosts"]

#: Bytes of the longest file that is sent.
_FILE_MAX = 64 << 20
#: Stands for the libraries of the host in a search path.
_LIBRARIES = b""


class CodeServer:
    """Answers host agents, on a thread of its own: a file system may be slow. On the root's loop."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[AskCode, Callable[[Code], object]] | None] = queue.SimpleQueue()
        self._thread: RuntimeThread | None = None

    def ask(self, question: AskCode, send: Callable[[Code], object]) -> None:
        """Answer a question later: ``send`` is called on that thread."""
        if self._thread is None:
            self._thread = RuntimeThread(target=self._run, name="meshrt-code", daemon=True)
            self._thread.start()
        self._asked.put((question, send))

    def close(self) -> None:
        """Answer no more."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            question, send = asked
            try:
                send(answer(question))
            except ProtocolError as error:  # it is too long: a directory with very many files
                send(_refused(question, str(error)))
            except RuntimeError:
                return  # the loop has ended


def answer(question: AskCode) -> Code:
    """Return the answer to a question. Whatever goes wrong is part of it."""
    try:
        if not question.module:
            return _text(question)
        spec = _find(question.module) if _is_name(question.module) else None
        return _file(question, spec) if question.file else _module(question, spec)
    except Exception as error:  # finders may be anything, and the rank waits
        return _refused(question, f"{type(error).__name__}: {error}")


# ---- modules


def _is_name(name: str) -> bool:
    return all(part and not {"/", "\\", "\0"}.intersection(part) for part in name.split("."))


def _find(name: str) -> ModuleSpec | None:
    """Return the spec of a module as this process has it, or would find it; its packages are not imported."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(spec, ModuleSpec):
        return spec
    parent = name.rpartition(".")[0]
    places: list[str] | None = None
    if parent:
        outer = _find(parent)
        if outer is None or outer.submodule_search_locations is None:
            return None
        places = list(outer.submodule_search_locations)
    for finder in list(sys.meta_path):
        found = finder.find_spec(name, places)
        if found is not None:
            return found
    return None


def _module(question: AskCode, spec: ModuleSpec | None) -> Code:
    if spec is None or spec.origin in ("built-in", "frozen"):
        return Code(question.id, "absent")
    places = None if spec.submodule_search_locations is None else [*map(_absolute, spec.submodule_search_locations)]
    if spec.origin is None:
        own = [place for place in places or () if not _is_installed(os.path.join(place, ""))]
        return (
            Code(question.id, "namespace", places=own) if own else Code(question.id, "installed", *(places or ())[:1])
        )
    path = _absolute(spec.origin)
    if _is_installed(path):
        return Code(question.id, "installed", path)
    if path.endswith(tuple(EXTENSION_SUFFIXES)):
        return _refused(question, f"{path} is compiled; install it on that machine")
    data = _source_of(spec, path)
    if data is None:
        return _refused(question, f"{path} has no source text; install it on that machine")
    return _piece(question, "source", path, data, places)


def _source_of(spec: ModuleSpec, path: str) -> bytes | None:
    """Return the text of a module: of a file, or of what its loader reads (an archive)."""
    if os.path.isfile(path):
        if not path.endswith(".py"):
            return None
        with open(path, "rb") as file:
            return file.read(_FILE_MAX)
    loader: Any = spec.loader
    text = loader.get_source(spec.name) if hasattr(loader, "get_source") else None
    return None if text is None else text.encode()


# ---- files


def _file(question: AskCode, spec: ModuleSpec | None) -> Code:
    """Return a file of a package, or the names in a directory of it."""
    parts = PurePosixPath(question.file).parts
    if spec is None or spec.submodule_search_locations is None or _is_installed(spec.origin or ""):
        return Code(question.id, "absent")
    if ".." in parts or question.file.startswith("/") or "\0" in question.file:
        return _refused(question, f"{question.file} is not below the directory of package {question.module}")
    for place in spec.submodule_search_locations:
        path = os.path.join(_absolute(place), *parts)
        if os.path.isdir(path):
            names = sorted(entry.name + "/" * entry.is_dir() for entry in os.scandir(path))
            return Code(question.id, "directory", path, names)
        if os.path.isfile(path):
            return _piece_of_file(question, path)
    return Code(question.id, "absent")


def _piece_of_file(question: AskCode, path: str) -> Code:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > _FILE_MAX:
            return _refused(question, f"{path} has {status.st_size} bytes; expected at most {_FILE_MAX}")
        # A digest of the content would have to read all of it for each piece.
        digest = f"{status.st_size}.{status.st_mtime_ns}"
        file.seek(question.offset)
        data = None if question.known == digest else file.read(PIECE)
    return Code(question.id, "file", path, digest=digest, size=status.st_size, data=data)


def _text(question: AskCode) -> Code:
    """Return a source file by its name: of ``__main__``, of a module, of a notebook's cell."""
    path = question.file
    if not _may_be_read(path):
        return Code(question.id, "absent")
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return _piece(question, "source", path, file.read(_FILE_MAX))
    text = source_text(path)
    return Code(question.id, "absent") if text is None else _piece(question, "source", path, text.encode())


def _may_be_read(path: str) -> bool:
    """Whether a file has source of this program: it is loaded, shown, or below a directory that is searched."""
    if path in linecache.cache or any(path == _file_of(module) for module in list(sys.modules.values())):
        return True
    if not path.endswith(".py") or path != os.path.normpath(path):
        return False
    return any(path.startswith(os.path.join(entry, "")) for entry in _own_entries(sys.path))


def _file_of(module: object) -> str:
    path = getattr(module, "__dict__", {}).get("__file__")  # the module's own __getattr__ is user code
    return os.path.abspath(path) if isinstance(path, str) else ""


# ---- both


def _piece(question: AskCode, kind: Any, path: str, data: bytes, places: Sequence[str] | None = None) -> Code:
    digest = digest_of(data)
    piece = None if question.known == digest else data[question.offset : question.offset + PIECE]
    return Code(question.id, kind, path, places, digest, len(data), piece)


def _refused(question: AskCode, why: str) -> Code:
    return Code(question.id, "refused", why=why)


def _absolute(path: str) -> str:
    return path if os.path.isabs(path) else os.path.normpath(os.path.join(working_directory(), path))


@functools.cache
def _archive() -> str:
    return f"python{sys.version_info.major}{sys.version_info.minor}.zip"


def _is_installed(path: str) -> bool:
    """Whether a file, or a directory with its last ``/``, comes with Python, with a library, or with meshrt."""
    return is_library_file(path) or path.startswith(RUNTIME_FILES) or os.path.basename(path.rstrip("/")) == _archive()


def _own_entries(entries: Iterable[str]) -> list[str]:
    found = [_absolute(entry) for entry in entries]
    return [entry for entry in found if not _is_installed(os.path.join(entry, ""))]


def path_for_hosts(entries: Iterable[str]) -> list[bytes]:
    """Return a search path for another machine: the script's own entries, and one entry for all of Python's and of
    libraries, which is empty: these are where they are there.
    """
    found: list[bytes] = []
    for entry in map(_absolute, entries):
        own = not _is_installed(os.path.join(entry, ""))
        path = os.fsencode(entry) if own else _LIBRARIES
        if own or _LIBRARIES not in found:
            found.append(path)
    return found if _LIBRARIES in found else [*found, _LIBRARIES]
