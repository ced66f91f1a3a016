"""The store as one process uses it, and its periodic work.

    Packer    values on their way out                    Arenas      what this process writes
    Borrower  what has come, and the memory it is in     Registrars  the connections to the stores of the hosts

There is no lock here. The tick runs on a thread that must not be blocked: the root's loop, or a rank's control thread.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

from meshrt.errors import MeshError, StoreFull, StoreTimeout
from meshrt.store.arenas import Arenas
from meshrt.store.lease import Lease, Loan
from meshrt.store.limits import spills
from meshrt.store.packing import LARGE, Packer, Parcel
from meshrt.store.receiving import Borrower
from meshrt.store.refs import ObjectRef
from meshrt.store.registrars import Registrars
from meshrt.store.tensors import reducers
from meshrt.store.unsent import Unsent
from meshrt.transport.interrupts import installed
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.wire import codec
from meshrt.wire.handshake import Identity

__all__ = ["Store", "encode_result"]

#: Seconds between two checks for released memory.
_TICK = 1.0


def encode_result(value: object, receivers: Callable[[], list[Identity] | None], site: Callable[[], str]) -> Parcel:
    """Pickle the result of an endpoint, with the store of this process if it belongs to a program.

    Args:
        receivers: As in `Packer.encode`.
        site: Returns which endpoint it is; asked where shared memory is written.
    """
    store: Store | None = current_runtime().store if has_runtime() else None
    if store is None:
        return Parcel(*codec.encode(value))
    try:
        with Unsent() as unsent:
            parcel: Parcel = store.encode(value, "result", receivers, site, unsent=unsent, answered=False)
            unsent.sent()  # in a moment, by a rank, whose main thread hears no Ctrl-C
        return parcel
    except (MeshError, OSError) as error:  # of a reference in it, whose store cannot be reached
        raise codec.EncodeError(f"{codec.describe(value)} cannot be sent: {codec.text_of(error)}") from error


class Store:
    """Any thread.

    Args:
        directory: The runtime directory of the program.
        run_directory: The directory of objects that spill.
        secret: Processes prove it to each other.
        home: As of `Registrars`.
        host_of: Returns the host of an agent; "" if that is not known here.
        call_later: Calls a function after some seconds, on a thread that must not be blocked.
    """

    def __init__(
        self,
        directory: str,
        run_directory: str,
        secret: bytes,
        home: Callable[[float], int],
        host_of: Callable[[int], str],
        call_later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._call_later = call_later
        self._ticking = False
        self._registrars = Registrars(directory, secret, home, host_of, self._watch)
        self._arenas = Arenas(self._registrars, run_directory, self._watch)
        self._borrower = Borrower(self._registrars, self._arenas, self._watch)
        self._packer = Packer(self._arenas, self._registrars, self._borrower)
        #: See `Packer.encode`, `Borrower.claim` and `Registrars.identity`.
        self.identity = self._registrars.identity
        self.encode = self._packer.encode
        self.claim = self._borrower.claim
        codec.reduce_with(functools.partial(reducers, LARGE))

    def wait_until_served(self) -> None:
        """Wait for the first host agent, while one is starting."""
        self._registrars.wait_for_home()

    def put(self, value: object, *, lazy: bool, spill: bool | None, site: str) -> ObjectRef[object]:
        """Write an object once, and return a reference to it.

        Raises:
            EncodeError: It cannot be pickled.
            StoreFull: There is no room for it.
            StoreTimeout: The host agent does not answer.
            ReferenceLost, OSError: There is no store, no descriptor, no place on the disk.
        """
        data, buffers = codec.pickled(value)
        pieces = [memoryview(data), *buffers]
        self.wait_until_served()  # that can be interrupted
        with installed():  # when Ctrl-C is raised, the segment has a lease, which releases it
            loan, starts = self._written(pieces, site, spills() if spill is None else spill)
            lease = Lease(self._borrower, loan, self._borrower.mapping(loan))
        return ObjectRef(lease, list(zip(starts, [piece.nbytes for piece in pieces], strict=True)), lazy, site)

    def _written(self, pieces: Sequence[memoryview], site: str, spill: bool) -> tuple[Loan, list[int]]:
        own = [os.getpid()]
        try:
            return self._arenas.write(pieces, "put", site, own)
        except StoreTimeout:
            raise  # no place on a disk helps
        except (StoreFull, OSError):
            if not spill:
                raise
            try:
                return self._arenas.write(pieces, "put", site, own, disk=True)
            except StoreTimeout:
                raise  # nor is the disk to blame
            except OSError as error:
                where = f"put() cannot write to a file in {self._arenas.run_directory} either: {error.strerror}"
                raise OSError(error.errno, where) from error

    def statistics(self) -> dict[str, int | str]:
        """Return its state, after receiving what was released: ``taken`` and ``committed`` bytes of what this process
        has written, and how many messages went through sockets because there was no room: ``refusals``, ``why``."""
        return {**self._arenas.statistics(), "refusals": self._packer.refusals, "why": self._packer.why_refused}

    def _watch(self) -> None:
        if not self._ticking and not self._registrars.closed:
            self._ticking = True
            self._call_later(_TICK, self._tick)

    def _tick(self) -> None:
        """Read which memory was released, and give back what was not needed for a while: a slice at a time."""
        self._ticking = False
        busy = self._registrars.tend()
        more, in_use = self._arenas.tend()
        if more and not self._registrars.closed:
            self._ticking = True
            self._call_later(0.0, self._tick)  # after the other work of this thread
        elif in_use or busy:
            self._watch()

    def close(self) -> None:
        """The end of this process's part in the program, or a forked child, which holds nothing. Views stay valid."""
        self._registrars.close()
        self._arenas.close()
