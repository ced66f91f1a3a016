"""What Python does with an error that nothing catches."""

from __future__ import annotations

import sys

from meshrt.files import without_runtime

__all__ = ["show_uncaught"]


def show_uncaught(error: BaseException) -> None:
    """Give an error to `sys.excepthook`, as an interpreter does, without the frames of meshrt that have run the code.

    Raises:
        SystemExit: By the hook: the status of the process.
    """
    own = error.__traceback__ = without_runtime(error.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, own
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, own)
    except SystemExit:
        raise
    except BaseException as failed:
        failed.__suppress_context__ = failed.__context__ is error
        failed.__traceback__ = without_runtime(failed.__traceback__)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, own)
