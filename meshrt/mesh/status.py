"""The exit status of the script's process, set independently of the interpreter."""

from __future__ import annotations

__all__ = ["die_by", "exit_with"]


def exit_with(status: int) -> None:
    """Have this process exit with ``status``.

    An interpreter that exits cannot change its status any more; ``os._exit`` could, but would skip functions that
    others have registered with `atexit`. So the C library does it: functions that are registered there run after the
    interpreter's end. A call of ``exit`` in one of them goes on with the remaining ones, and with another status
    (glibc's ``__run_exit_handlers``; musl ends at once).
    """
    _at_last("exit", status)


def die_by(number: int) -> None:
    """Have this process die by a signal when the interpreter has ended; that has set the default handlers again."""
    _at_last("raise", number)


def _at_last(name: str, argument: int) -> None:
    """Have the C library call one of its functions behind the interpreter's end."""
    import ctypes  # start-up: only where something has failed, or Ctrl-C has ended the script

    try:
        library = ctypes.CDLL(None)
        register = library.__cxa_atexit
        function = ctypes.cast(getattr(library, name), ctypes.c_void_p)
    except (OSError, AttributeError):  # another C library
        return
    register.argtypes = [ctypes.c_void_p] * 3
    register(function, argument, None)
