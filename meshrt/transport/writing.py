"""Writing files for users and other processes: whole, private, and never through a link of another user.

All of meshrt writes files by these functions (`tests/test_layers.py` checks that).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport.paths import NotTrusted, in_proc, is_trusted, open_parent

__all__ = ["check_place", "open_private", "write_atomic"]

#: Bytes of a file's name that its temporary file's name has: a name has 255 at most.
_NAME_MAX = 200
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: Path, flags: int) -> int:
    """Return a descriptor of a file in a directory of this program, to write to; a new one has mode 0600.

    Raises OSError, also where a link has the name.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def write_atomic(path: Path, text: str | Iterable[str], *, private: bool = False, durable: bool = False) -> None:
    """Write a file so that a reader sees all of it or nothing.

    A new file has mode 0600. One of this user that is replaced keeps its mode, one of another user does not. A link
    stays one, and its target is written; a link, or a pipe, of another user is refused. A pipe or a device cannot be
    replaced: it is written to, as ``/dev/stdout`` is.

    Args:
        text: All of it, or its pieces in order.
        private: An existing file loses the permissions of other users.
        durable: It is on the disk before it replaces the one before, so that one of them is there after a power cut.
    Raises:
        OSError: It cannot be written, and nothing is left. The error names ``path``, also where the disk is full.
    """
    with _naming(path):
        parent, name = open_parent(path)
    temporary = ""
    try:
        with _naming(path):
            facts = _facts_of(parent, name)
            descriptor = _own_output(path)
            if descriptor is None and facts is not None:
                descriptor = _opened_as_it_is(parent, name, facts)
            if descriptor is None:
                new = f".{os.fsdecode(os.fsencode(name)[:_NAME_MAX])}.{os.urandom(8).hex()}"
                descriptor = os.open(new, _NEW, 0o600, dir_fd=parent)
                temporary = new
        with _naming(path, of_path_only=True), open(descriptor, "w", encoding="utf-8") as file:
            if temporary:
                os.fchmod(descriptor, _mode(facts, private=private))
            file.writelines([text] if isinstance(text, str) else text)
            if durable and temporary:
                file.flush()
                os.fsync(descriptor)
        if temporary:
            with _naming(path):
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            temporary = ""
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
        os.close(parent)


def check_place(path: Path) -> None:
    """Raise UsageError if `write_atomic` cannot write a file: asked before something is done whose result it will have.

    A file is made in its directory, and removed, as only the kernel knows all reasons why that cannot be done.
    """
    try:
        _try_place(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _try_place(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a directory; expected the name of a file")
    if path.exists() and not path.is_file():  # a pipe or a device, which is written to
        if not os.access(path, os.W_OK):
            raise UsageError(f"{path} cannot be written: permission denied")
        return
    directory = Path(os.path.realpath(path)).parent  # the target of a link is written
    if not directory.is_dir():
        raise UsageError(f"{path} cannot be written: there is no directory {directory}")
    parent, _ = open_parent(path)
    try:
        name = f".{os.urandom(8).hex()}"
        os.close(os.open(name, _NEW, 0o600, dir_fd=parent))
        os.unlink(name, dir_fd=parent)
    except PermissionError:
        raise UsageError(f"{path} cannot be written: no permission to write in {directory}") from None
    finally:
        os.close(parent)


@contextlib.contextmanager
def _naming(path: Path, *, of_path_only: bool = False) -> Iterator[None]:
    """Have errors name ``path``; those that name another file stay what they are with ``of_path_only``."""
    try:
        yield
    except OSError as error:
        if not error.errno or (of_path_only and error.filename is not None):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _facts_of(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=in_proc(os.fstat(parent)))
    except FileNotFoundError:
        return None


def _mode(facts: os.stat_result | None, *, private: bool) -> int:
    if facts is None or not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
        return 0o600
    return stat.S_IMODE(facts.st_mode) & (0o700 if private else 0o777)


def _own_output(path: Path) -> int | None:
    """Return a descriptor of this process's output if that is what ``path`` names."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed, or there is nothing
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return os.dup(descriptor)  # opened again it would begin at its start, and a socket cannot be opened
    return None


def _opened_as_it_is(parent: int, name: str, facts: os.stat_result) -> int | None:
    """Return a descriptor of what is to be written to where it is; None: of a file that can be replaced."""
    if stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
        return None
    if stat.S_ISSOCK(facts.st_mode):
        raise OSError(errno.ENXIO, "it is a socket")
    magic = in_proc(os.fstat(parent))
    if stat.S_ISFIFO(facts.st_mode) and not magic and not is_trusted(facts.st_uid):
        raise NotTrusted(name, f"it is a pipe of uid {facts.st_uid}, another user, who could read the output")
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(name, flags if magic else flags | os.O_NOFOLLOW, dir_fd=parent)
    if not os.path.samestat(facts, os.fstat(descriptor)):
        os.close(descriptor)
        raise NotTrusted(name, "it was replaced meanwhile")
    return descriptor
