"""What runs in a process that ``meshrt attach`` takes in: on its main thread, between two of its own instructions.

The text of this file, and a call of `take_in` behind it, is what ``sys.remote_exec`` has the process run. So no name of
it is seen by the process. It raises nothing and prints nothing; the command is told at a socket.

::

    main thread    starts a thread, and goes on          here: joins, and goes on
    that thread      loading --> it has the process run the same text again, `--> here --> joined
                       `----> failed: why                                           `----> failed: why

To load what is needed takes tenths of a second, for which the main thread should not rest.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import importlib
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["take_in"]

_ARRIVING = "meshrt.spmd.join"
#: Seconds for the command to take what it is told.
_TELL = 1.0


class _Finder:
    """Finds, behind all other finders, the packages of the command that this process does not have, and no others."""

    of_meshrt = True

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        return PathFinder.find_spec(name, [self._places[name]]) if path is None and name in self._places else None


def take_in(
    script: str, teller: str, folder: str, version: str, places: Mapping[str, str], needed: Sequence[str], part: str
) -> None:
    """Have this process join.

    Args:
        script: The file of this text, which is removed at the end.
        teller: The socket of the command.
        folder: Where the package meshrt is.
        version: Of meshrt.
        places: In which directory the command has found each package that may be missing here.
        needed: Those without which a process cannot join.
        part: What `meshrt.spmd.join.arrive` is given.
    """
    told = _Told(script, teller)
    try:
        _refuse_another(version)
        if _ARRIVING in sys.modules:
            told("here")
            sys.modules[_ARRIVING].arrive(part, told.end)
        else:
            told("loading")
            load = functools.partial(_load, folder, places, needed)
            threading.Thread(target=_prepare, args=(told, load), name="meshrt-load", daemon=True).start()
    except KeyboardInterrupt:
        told.end("Ctrl-C has interrupted it")
        _thread.interrupt_main()  # it was meant for the process
    except BaseException as error:
        told.end(_words(error))


class _Told:
    """What the command is told. Where it has gone, its last process clears up."""

    def __init__(self, script: str, teller: str) -> None:
        self.script = script
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(_TELL)
        self._teller = teller
        with contextlib.suppress(OSError):
            self._sock.connect(teller)

    def __call__(self, text: str) -> bool:
        """Tell it; returns whether the command is there."""
        try:
            # Without SIGPIPE, which may end this process.
            self._sock.sendall(text.encode("utf-8", "backslashreplace") + b"\n", socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Tell nothing more for now."""
        self._sock.close()

    def end(self, why: str) -> None:
        """Tell how it has ended: ``""``, the process has joined."""
        with contextlib.suppress(OSError):
            os.unlink(self.script)
        if not self(f"failed: {why}" if why else "joined"):
            with contextlib.suppress(OSError):
                os.unlink(self._teller)
                os.rmdir(os.path.dirname(self._teller))
        self.close()


def _prepare(told: _Told, load: Callable[[], None]) -> None:
    """Load what is needed, and have the main thread join."""
    try:
        load()
        sys.remote_exec(os.getpid(), told.script)  # type: ignore[attr-defined]  # since Python 3.14
        told.close()
    except BaseException as error:
        told.end(_words(error))


def _words(error: BaseException) -> str:
    says_all = isinstance(error, ImportError) or type(error).__module__.startswith("meshrt.")
    return str(error) if says_all else f"{type(error).__name__}: {error}"


def _refuse_another(version: str) -> None:
    """Raise ImportError: another meshrt is loaded here."""
    known = sys.modules.get("meshrt")
    loaded = getattr(known, "__version__", "of another project")
    if known is not None and loaded != version:
        raise ImportError(f"it has loaded meshrt {loaded}, but the command belongs to meshrt {version}")


def _load(folder: str, places: Mapping[str, str], needed: Sequence[str]) -> None:
    """Load the meshrt of the command, and see that what it needs can be loaded. Raises ImportError."""
    if not any(hasattr(finder, "of_meshrt") for finder in sys.meta_path):
        sys.meta_path.append(_Finder(places))
    if "meshrt" not in sys.modules:
        spec = PathFinder.find_spec("meshrt", [folder])
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} has no package meshrt that this process can read")
        sys.modules["meshrt"] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules["meshrt"])
        except BaseException:
            del sys.modules["meshrt"]
            raise
    for name in needed:
        try:
            importlib.import_module(name)
        except ImportError as error:
            python = sys.executable or "it"
            raise ImportError(f"its Python cannot load {name} ({error}); {python} needs {', '.join(needed)}") from error
    importlib.import_module(_ARRIVING)
