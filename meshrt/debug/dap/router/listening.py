"""The sockets that IDEs connect to: a port of the loopback interface, or a unix socket of this user alone."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.loopback import LoopbackTable

__all__ = ["DEFAULT_PORT", "listen_at_path", "listen_at_port", "remove_left_over"]

DEFAULT_PORT = 5678
_BACKLOG = 128


def listen_at_port(port: int, table: LoopbackTable) -> socket.socket:
    """Return a socket that listens at a port of 127.0.0.1; 0 for any free port. Raises OSError."""
    # With the number of the protocol: asyncio sets TCP_NODELAY where it is said. Without it a message that follows
    # another one waits 40 ms for the acknowledgement of that.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        owner = table.listener(port) if error.errno == errno.EADDRINUSE else None
        whose = "" if owner is None or owner == os.geteuid() else f" by another user (uid {owner}): attach no IDE to it"
        raise OSError(f"cannot listen at port {port}: {error.strerror}{whose}; --port 0 chooses a free port") from error
    return listener


def listen_at_path(path: Path) -> socket.socket:
    """Return a unix socket of mode 0600 that listens at ``path``.

    Raises:
        OSError: It cannot.
        UsageError: Something else is there, or there is no such directory.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(f"{path} is not a socket")
        _remove_left_over(path)
    try:
        return listening_socket(str(path))
    except FileNotFoundError:
        raise UsageError(f"{path} cannot be created: there is no directory {path.parent}") from None
    except OSError as error:
        # One that is too long has no number, and so no text of the system's.
        raise OSError(f"cannot listen at {path}: {error.strerror or error}") from error


def remove_left_over(paths: Iterable[Path]) -> None:
    """Remove the sockets among ``paths`` at which no process listens, as theirs was killed."""
    for path in paths:
        with contextlib.suppress(UsageError, OSError):
            _remove_left_over(path)


def _remove_left_over(path: Path) -> None:
    """Remove a socket at which no process listens. Raises UsageError if one does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise UsageError(f"another process listens at {path}")
