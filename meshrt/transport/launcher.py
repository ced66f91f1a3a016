"""What a launcher such as ``torchrun`` has given this process: the file in which to say why it fails.

The launcher names the file in the environment, and every child would inherit the name: a child that fails would write
over what its parent has said. So the process that is to use the file takes it: from then on the environment names
another one, next to it, for the children; ranks have one each anyway (`meshrt.host.child`).

A parent that `meshrt.failure.run` has put in between gives one thing more, in `FAULT_FILE`: a descriptor
for what faulthandler writes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from pathlib import Path
from typing import NamedTuple

from meshrt.transport.directories import ERROR_FILE

__all__ = ["FAULT_FILE", "catch_crashes", "children_file", "give_back", "launcher_file", "take"]

#: ``<descriptor>:<process id of the parent>``. Grandchildren inherit the variable too, and not the descriptor.
FAULT_FILE = "MESHRT_FAULT_FILE"


class _Taken(NamedTuple):
    pid: int
    path: Path


_taken: _Taken | None = None


def launcher_file() -> Path | None:
    """Return the file of this process; None without a launcher (an empty name counts as none). Any thread."""
    if _taken is not None and _taken.pid == os.getpid():
        return _taken.path
    name = os.environ.get(ERROR_FILE)  # of a fork: the children's
    return Path(os.path.abspath(name)) if name else None


def children_file() -> Path | None:
    """Return the file of what this process starts, once it has taken its own. Any thread."""
    path = launcher_file()
    return None if path is None else _for_children(path)


def _for_children(path: Path) -> Path:
    return path.with_suffix(f".children{path.suffix}")


def take() -> bool:
    """Keep the file for this process alone; returns whether there was one to take. A thread of the script."""
    global _taken
    catch_crashes()
    path = launcher_file()
    if path is None or (_taken is not None and _taken.pid == os.getpid()):
        return False
    _taken = _Taken(os.getpid(), path)
    os.environ[ERROR_FILE] = str(_for_children(path))
    return True


def give_back() -> None:
    """Undo `take`; a no-op in a fork of the process that took it. A thread of the script.

    If nothing was said, then what code of TorchElastic in this process, or a child, has written is left where the
    launcher looks for it, as without meshrt.
    """
    global _taken
    if _taken is None or _taken.pid != os.getpid():
        return
    path, others = _taken.path, _for_children(_taken.path)
    _taken = None
    if os.environ.get(ERROR_FILE) == str(others):
        os.environ[ERROR_FILE] = str(path)
    if not path.exists():
        with contextlib.suppress(OSError):  # most often there is none
            others.rename(path)


def catch_crashes() -> None:
    """Have faulthandler write to a parent that waits for it, and take `FAULT_FILE` from the environment."""
    descriptor, _, parent = os.environ.pop(FAULT_FILE, "").partition(":")
    if descriptor and parent == str(os.getppid()):
        faulthandler.enable(int(descriptor), all_threads=True)
