"""The chunks of other processes that this one has seen: each is fetched from its store once, and mapped."""

from __future__ import annotations

import os
from collections.abc import Callable

from meshrt.errors import MeshError, ReferenceLost, StoreTimeout
from meshrt.store.mapping import Copies, Mapping
from meshrt.store.messages import Fetched
from meshrt.store.protocol import Incoming

__all__ = ["Chunks"]


class Chunks:
    """Those that one store knows of. Any thread: each change is one step.

    Args:
        fetch: Asks the store for the file of a chunk. Raises MeshError where it is refused, OSError.
    """

    def __init__(self, fetch: Callable[[int], Incoming[Fetched]]) -> None:
        self._fetch = fetch
        self._maps: dict[int, Mapping | Copies] = {}

    def __bool__(self) -> bool:
        """Whether messages of the store must be read, as it says which chunks are dropped."""
        return bool(self._maps)

    def mapping(self, chunk: int) -> Mapping | Copies:
        """Return a chunk as it is mapped here.

        Raises:
            ReferenceLost: It does not exist any more.
            StoreTimeout: The store does not answer.
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
            answer, descriptors = self._fetch(chunk)
        except StoreTimeout:
            raise  # it is not gone
        except MeshError as error:
            raise ReferenceLost(f"shared memory cannot be obtained from its host: {error}") from error
        if not descriptors:
            raise OSError("no file descriptor is left for shared memory (see ulimit -n)")
        return descriptors[0], answer.size

    def dropped(self, chunk: int) -> None:
        """The store says that it need not be mapped any more; views that are there stay valid."""
        self._maps.pop(chunk, None)

    def clear(self) -> None:
        """Drop them: this process does not need them any more."""
        self._maps.clear()
