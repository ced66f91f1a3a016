"""The segments that received messages name, and the memory that they are in.

There is no lock: the segments of a message belong to its reader, and each `Registrar` has a lock of its own.
Finalizers call `Borrower.let_go`, so it never waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from meshrt.errors import MeshError, ProtocolError, ReferenceLost, StoreFull, StoreTimeout
from meshrt.store.arenas import Arenas
from meshrt.store.lease import Loan, Received
from meshrt.store.mapping import Copies, Mapping
from meshrt.store.messages import Import, Imported, Take, Taken
from meshrt.store.registrars import Registrars
from meshrt.transport.paths import closed_after
from meshrt.wire.frames import Frame
from meshrt.wire.messages import STORED

__all__ = ["Borrower"]


class Borrower:
    """Reaches the stores for the leases of this process (`meshrt.store.lease.Lender`). Any thread.

    Args:
        registrars: How stores are reached.
        arenas: What this process has written itself, and need not be fetched.
        watch: Called when a registrar is to be listened to from now on.
    """

    def __init__(self, registrars: Registrars, arenas: Arenas, watch: Callable[[], None]) -> None:
        self._registrars = registrars
        self._arenas = arenas
        self._watch = watch

    def claim(self, frame: Frame) -> Frame:
        """Take what came with a frame of a kind with the flag ``STORED``; dropping the result releases it.

        Raises:
            ProtocolError: It does not say what that is.
        """
        try:
            return self._claim(frame)
        except (TypeError, ValueError, IndexError) as error:
            raise ProtocolError(f"a message that does not say what is in shared memory: {error}") from None

    def _claim(self, frame: Frame) -> Frame:
        *header, shared = frame.header
        machine, own = self._registrars.identity().machine, os.getpid()
        given = True
        for loans, holders in shared:
            found = [Loan(*loan) for loan in loans]
            if holders is not None and own in holders and found[0].machine == machine:
                break
        else:
            # It was not handed to this process: it is kept for it by the sender, or it was sent to the process of which
            # this one has taken the place.
            given, found = False, [Loan(*loan) for loan in shared[0][0]]
        received = Received(self, frame.payload, found, given)
        return Frame(frame.kind & ~STORED, header, received)

    def mapping(self, loan: Loan) -> Mapping | Copies:
        """Return the chunk of a segment as it is mapped here. Raises ReferenceLost, OSError."""
        own = self._arenas.chunk(loan.chunk)
        if own is not None:
            return own.mapping
        mapping = self._registrars.of(loan.agent_pid).chunks.mapping(loan.chunk)
        self._watch()
        return mapping

    def private(self, loan: Loan) -> Mapping:
        """Map a segment so that it can be written to, which no other process sees. Raises ReferenceLost, OSError."""
        own = self._arenas.chunk(loan.chunk)
        if own is not None:
            return Mapping(own.descriptor, loan.size, private=True, offset=loan.start)
        descriptor, _ = self._registrars.of(loan.agent_pid).chunks.fetch(loan.chunk)
        with closed_after(descriptor):
            return Mapping(descriptor, loan.size, private=True, offset=loan.start)

    def take(self, loan: Loan) -> Loan:
        """Hold a segment once more, on this machine: what is on another one, this host's store fetches for all.

        Raises:
            ReferenceLost: It is gone, or its host was lost.
            StoreFull: This host has no room for what is on another one.
            StoreTimeout: The agent of this host does not answer.
        """
        try:
            if loan.machine == self._registrars.identity().machine:
                self._registrars.of(loan.agent_pid).ask(lambda number: Take(number, loan.segment), Taken)
                return loan
            self._registrars.wait_for_home()
            home = self._registrars.of(self._registrars.home(0.0))
            return home.ask(lambda number: Import(number, loan), Imported).loan
        except (StoreFull, StoreTimeout):
            raise
        except (MeshError, OSError) as error:
            self._registrars.wait_for_own_end()
            raise ReferenceLost(f"the shared memory of this message is not available any more: {error}") from error

    def let_go(self, loan: Loan) -> None:
        """This process holds a segment once less. A finalizer may call it."""
        self._registrars.let_go(loan.agent_pid, loan.segment)
