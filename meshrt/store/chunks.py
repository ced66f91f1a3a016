"""The chunks of other processes that this one has seen: each is fetched from its store once, and mapped."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from meshrt.errors import MeshError, ReferenceLost, StoreTimeout
from meshrt.store.mapping import Copies, Mapping

__all__ = ["Chunks"]


class Chunks:
    """Those that one store knows of. Any thread: each change is one step.

    Args:
        ask: Asks the store (`meshrt.store.registrar.Registrar.ask`).
    """

    def __init__(self, ask: Callable[..., tuple[dict[str, Any], list[int]]]) -> None:
        self._ask = ask
        self._maps: dict[int, Mapping | Copies] = {}

    def __bool__(self) -> bool:
        """Whether the store has to be listened to, as it says which of them is dropped."""
        return bool(self._maps)

    def mapping(self, chunk: int) -> Mapping | Copies:
        """Return a chunk as it is mapped here.

        Raises:
            ReferenceLost: It is not there any more.
            StoreTimeout: The store says nothing.
            OSError: No descriptor is left.
        """
        found = self._maps.get(chunk)
        if found is not None:
            return found
        descriptor, size = self.fetch(chunk)
        try:
            mapping: Mapping | Copies = Mapping(descriptor, size)
            os.close(descriptor)
        except OSError:
            mapping = Copies(descriptor)  # no addresses are left (ulimit -v)
        return self._maps.setdefault(chunk, mapping)

    def fetch(self, chunk: int) -> tuple[int, int]:
        """Return a descriptor of a chunk, for reading, and its size. Raises as `mapping`."""
        try:
            answer, descriptors = self._ask("fetch", chunk=chunk)
        except StoreTimeout:
            raise  # it is not gone
        except MeshError as error:
            raise ReferenceLost(f"shared memory cannot be had from its host: {error}") from error
        if not descriptors:
            raise OSError("no file descriptor is left for shared memory (see ulimit -n)")
        return descriptors[0], answer["size"]

    def dropped(self, chunk: int) -> None:
        """The store says that nobody needs it mapped any more; views that are there stay valid."""
        self._maps.pop(chunk, None)

    def clear(self) -> None:
        """None of them is needed here any more."""
        self._maps.clear()
