"""What runs in a process that ``meshrt attach`` takes in: on its main thread, between two of its own instructions.

The text of this file, and a call of `take_in` behind it, is what ``sys.remote_exec`` has the process run. So no name of
it is seen by the process. It raises nothing and prints nothing; the command is told at a socket::

    here --> joined
      `----> failed: why
"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["take_in"]

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
        script: The file of this text, which is removed.
        teller: The socket of the command.
        folder: Where the package meshrt is.
        version: Of meshrt.
        places: In which directory the command has found each package that may be missing here.
        needed: Those without which a process cannot join.
        part: What `meshrt.spmd.arriving.arrive` is given.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):  # the command has gone
            sock.sendall(text.encode("utf-8", "backslashreplace") + b"\n")

    def failed(why: str) -> None:
        tell(f"failed: {why}")
        sock.close()

    def joined(why: str) -> None:
        tell(f"failed: {why}" if why else "joined")
        sock.close()

    try:
        with contextlib.suppress(OSError):
            os.unlink(script)
        sock.settimeout(_TELL)
        try:
            sock.connect(teller)
        except OSError:
            with contextlib.suppress(OSError):  # the command has gone: the last one of its processes clears up
                os.unlink(teller)
                os.rmdir(os.path.dirname(teller))
        tell("here")
        _load(folder, version, places, needed)
        importlib.import_module("meshrt.spmd.arriving").arrive(part, joined)
    except KeyboardInterrupt:
        failed("Ctrl-C has interrupted it")
        _thread.interrupt_main()  # it was meant for the process
    except BaseException as error:
        failed(str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}")


def _load(folder: str, version: str, places: Mapping[str, str], needed: Sequence[str]) -> None:
    """Load the meshrt of the command, and see that what it needs can be loaded. Raises ImportError."""
    known = sys.modules.get("meshrt")
    loaded = getattr(known, "__version__", "of another project")
    if known is not None and loaded != version:
        raise ImportError(f"it has loaded meshrt {loaded}, and the command is of meshrt {version}")
    if not any(hasattr(finder, "of_meshrt") for finder in sys.meta_path):
        sys.meta_path.append(_Finder(places))
    if known is None:
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
            install = f"{sys.executable or 'python'} -m pip install {' '.join(needed)}"
            raise ImportError(f"its Python cannot load {name} ({error}); {install}") from error
