"""A value on its way into a message: which of its buffers go into the store, and which processes they are shared with.

Large buffers of a message go into shared memory instead of the socket, once for all receivers:

1. The sender allocates a block of its own arena, copies the buffers there, and **shares** the segment with the pids of
   the receivers, before it sends the message. From then on the receivers hold it, not the sender.
2. The header of the message names the segment; the bytes stay where they are. A receiver maps the sender's chunk when
   it sees it for the first time, and never again.
3. When the last view of it is gone in a receiver, that receiver releases it; when all have, the owner is told that it
   may write there again.

A sender that cannot say who the receivers are (ranks that are not born yet), or has some on other machines, **keeps**
the segment until it is answered, and those take it when they read. Where they will not answer, it is brought to other
machines before the message is sent (`meshrt.store.deliveries`): to those there it is like one of their own.

Where a store has no room, or is gone, the bytes travel through the socket as they do otherwise.

There is no lock: what is packed belongs to the thread that packs it, and the arenas have theirs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from meshrt.errors import MeshError
from meshrt.store.arenas import Arenas
from meshrt.store.lease import Lease, Lender, Loan
from meshrt.store.put import call_site
from meshrt.store.recipients import Recipients
from meshrt.store.refs import mentions, references_exist
from meshrt.store.registrars import Registrars
from meshrt.store.unsent import Unsent
from meshrt.transport.interrupts import installed
from meshrt.wire import codec
from meshrt.wire.codec import Lengths, Part
from meshrt.wire.handshake import Identity

__all__ = ["LARGE", "Packer", "Parcel"]

#: Buffers from this size on, bytes, go into shared memory.
LARGE = 256 << 10


Shared = tuple[Sequence[Loan], Sequence[int] | None]


class Parcel(NamedTuple):
    """A pickled value, ready to be sent."""

    parts: list[Part]
    #: For each of its buffers a length, or its place in a segment (`Received.bytes_at`).
    lengths: Lengths
    #: For the end of the header, if some of it is in the store: for each store that has it the loans, and the pids of
    #: their holders if these are known; that of this machine first.
    loans: list[Shared] | None = None
    #: What the sender has to hold until it is answered.
    kept: Sequence[Lease] = ()


class Packer:
    """Any thread.

    Args:
        arenas: Buffers are written there.
        registrars: Tell stores which processes are given a reference.
        lender: Told when segments that the sender keeps are released.
    """

    def __init__(self, arenas: Arenas, registrars: Registrars, lender: Lender) -> None:
        self._arenas = arenas
        self._registrars = registrars
        self._lender = lender
        #: Messages for which there was no room, and why for the last of them.
        self.refusals = 0
        self.why_refused = ""

    def encode(
        self,
        value: object,
        kind: str,
        receivers: Callable[[], list[Identity] | None],
        site: Callable[[], str] = call_site,
        *,
        unsent: Unsent,
        answered: bool = True,
    ) -> Parcel:
        """Pickle ``value`` for some receivers.

        Args:
            kind: "argument" or "result".
            receivers: Returns the receivers (empty: nothing is shared); None: not known, but they will answer.
            unsent: Told what they hold from then on.
            answered: Whether they will answer. If not, this waits until the data for other machines has arrived.
            site: Returns where in user code it is sent: by default where this was called.
        Raises:
            EncodeError: It cannot be pickled.
            MeshError, OSError: It has a reference in it, whose store cannot be reached; or that a host does not take.
        """
        if not references_exist():
            try:
                return self._pack(*codec.pickled(value), {}, kind, receivers, site, answered, unsent)
            except codec.EncodeError:
                if not references_exist():  # or else its own __reduce__ has put something
                    raise
        with mentions() as mentioned:
            data, buffers = codec.pickled(value)
        return self._pack(data, buffers, mentioned, kind, receivers, site, answered, unsent)

    def _pack(
        self,
        data: bytes,
        buffers: list[memoryview],
        mentioned: dict[int, Lease],
        kind: str,
        receivers: Callable[[], list[Identity] | None],
        site: Callable[[], str],
        answered: bool,
        unsent: Unsent,
    ) -> Parcel:
        large = [index for index, buffer in enumerate(buffers) if buffer.nbytes >= LARGE]
        if not large and not mentioned:
            return Parcel(*codec.lay_out(data, buffers))
        to = Recipients(self._registrars, receivers(), unsent)
        if mentioned and any(not host.machine and not host.agent_pid for host in to.away):
            raise MeshError(
                "it contains a reference, and another program has no access to the shared memory of this one; "
                "expected the object itself, such as reference.get()"
            )
        if to.away or not to.known:
            self._registrars.wait_for_home()
        # Brought to other machines now, or kept until those there have taken it.
        bring, keep = bool(to.away) and not answered, not to.known or (bool(to.away) and answered)
        if to.known and not to.here and (not to.away or (bring and len(to.away) == len(to.away[0].pids) == 1)):
            large = []  # it is not read, or it travels once as it is
        kept = list(mentioned.values())
        loans = [lease.loan for lease in kept]
        places: dict[int, list[int]] = {}
        elsewhere: list[Shared] = []
        if large:
            own = [os.getpid()] if bring or keep else []
            try:
                where = site()
                with installed():
                    loan, starts = self._arenas.write(
                        [buffers[index] for index in large], kind, where, own if bring else to.here + own
                    )
                    if own:
                        kept.append(Lease(self._lender, loan))
                    if not bring:
                        to.shared(self._registrars.of(loan.agent_pid), [loan.segment])
                if bring and not mentioned:
                    elsewhere = to.bring([loan])
            except (OSError, MeshError) as error:
                self._refused(error)
            else:
                places = {
                    index: [len(loans), start, buffers[index].nbytes]
                    for index, start in zip(large, starts, strict=True)
                }
                loans.append(loan)
        if not loans:
            return Parcel(*codec.lay_out(data, buffers))
        if bring and mentioned:
            elsewhere = to.bring(loans)
        to.give(loans if bring else loans[: len(mentioned)])
        parts, inline = codec.lay_out(data, [buffer for index, buffer in enumerate(buffers) if index not in places])
        rest = iter(inline[1:])
        lengths = [inline[0], *(places[index] if index in places else next(rest) for index in range(len(buffers)))]
        return Parcel(parts, lengths, [(loans, to.here if to.known else None), *elsewhere], kept if keep else ())

    def _refused(self, error: Exception) -> None:
        if not self.refusals:
            # Its text: a handler that keeps the error itself would keep the frames it went through, and their arrays.
            text = str(error)
            logging.getLogger("meshrt").warning("large arrays are sent through sockets, which is slower: %s", text)
        self.refusals += 1
        self.why_refused = str(error)
