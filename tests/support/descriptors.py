"""Numbers of descriptors, which the kernel gives out again as soon as they are free."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["next_is"]


@contextlib.contextmanager
def next_is(number: int) -> Iterator[None]:
    """The first descriptor that is opened in the block has this number, which is free."""
    with contextlib.ExitStack() as below:
        while (taken := os.open(os.devnull, os.O_RDONLY)) < number:
            below.callback(os.close, taken)
        os.close(taken)
        assert taken == number, f"{number} is in use"
        yield
