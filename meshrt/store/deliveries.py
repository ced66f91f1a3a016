"""Data for other machines in messages without an answer: it is brought there before the message is sent.

The result of an endpoint and a broadcast are not answered, so their sender would not know how long to keep what they
refer to. Instead the receivers' hosts are **offered** the segments, with the pids that are to hold them.
Each host fetches them once (`meshrt.store.imports`) and says where they are there. Only then the message goes out: to
its receivers it is like one of their own machine.

A delivery: ``offered -> there``, or ``-> failed``. It is there when all hosts have said so. If one refuses, or says
nothing for `_PATIENCE`, it has failed, and is **recalled** from the others. A host that is lost is left out, as its
ranks are. A silent host is not waited for again until it sends something, for example the answer to an offer.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import msgspec

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.hostlink import HostLink, Lost
from meshrt.store.hostlinks import HostLinks
from meshrt.store.lease import Loan
from meshrt.store.messages import Delivered, Full, Host, Imported, Offer, Piece, Silent, TakeBack, ToStore
from meshrt.wire.errors import why_of
from meshrt.wire.tree import Later, Refusal

__all__ = ["Deliveries"]

Answer = Callable[[Delivered | Later | Refusal | Silent], bool]
"""Answers the process that has asked. Returns whether the answer was sent."""

#: Seconds without a word of a host.
_PATIENCE = 10.0


class _Offer(msgspec.Struct, eq=False):
    """All segments of a delivery, to one host."""

    host: Host
    link: HostLink
    #: By the number that it was offered with: the segment.
    asked: dict[int, int] = {}
    #: By segment: where it is there.
    there: dict[int, Loan] = {}
    #: When it was last heard of (monotonic).
    heard: float = 0.0
    lost: bool = False


class _Delivery:
    def __init__(self, number: int, loans: Sequence[Loan], answer: Answer) -> None:
        self.number = number
        self.loans = loans
        self.answer = answer
        self.offers: list[_Offer] = []
        #: The error for the process, once the delivery has failed.
        self.failure: Refusal | Silent | None = None

    def fail(self, why: str) -> None:
        """It has failed; only the first reason counts."""
        self.failure = self.failure or Refusal(self.number, f"a destination host {why}")


class Deliveries:
    """One thread: that of the agent's selector."""

    def __init__(self, links: HostLinks) -> None:
        self._links = links
        self._open: set[_Delivery] = set()

    def begin(self, number: int, loans: Sequence[Loan], to: Sequence[Host], answer: Answer) -> None:
        """Bring segments of this store to other hosts, whose processes hold them then.

        Args:
            number: That of the question, used in the result.
            answer: Called, now or later, with the result. If it cannot be sent, the segments are recalled.
        """
        delivery = _Delivery(number, loans, answer)
        self._open.add(delivery)
        for host in to:
            known = self._links.find(host.machine, host.agent_pid)
            if known is not None and known.silence.since:
                self._says_nothing(delivery, known, known.silence.since)
                self._look(delivery)
                return
        for host in to:
            try:
                link = self._links.to(host.machine, host.agent_pid)
            except MeshError:
                continue  # it is lost
            except OSError as error:
                delivery.fail(f"cannot be reached: {why_of(error)}")
                continue
            offer = _Offer(host, link, heard=time.monotonic())
            delivery.offers.append(offer)
            told = functools.partial(self._told, delivery, offer)
            for loan in loans:
                asked = link.ask(functools.partial(Offer, loan=loan, pids=host.pids), told)
                offer.asked[asked] = loan.segment
        self._look(delivery)

    def recall(self, segments: Sequence[int], to: Sequence[Host]) -> None:
        """The message for segments that were brought to these hosts was not sent."""
        for machine, agent_pid, pids in to:
            link = self._links.find(machine, agent_pid)
            if link is not None:
                link.tell(TakeBack(segments, pids))

    def tick(self) -> None:
        """Give up hosts that send nothing; tell the waiting processes that it takes longer."""
        silent = time.monotonic() - _PATIENCE
        for delivery in tuple(self._open):
            for offer in delivery.offers:
                if offer.asked and offer.heard < silent:
                    offer.link.silence.in_vain(offer.heard)
                    self._says_nothing(delivery, offer.link, offer.heard)
                    self._give_up(offer)
                    self._look(delivery)
            if delivery in self._open:
                delivery.answer(Later(delivery.number))

    def _told(self, delivery: _Delivery, offer: _Offer, message: ToStore | Piece | Lost) -> None:
        offer.heard = time.monotonic()
        match message:
            case Later():
                return
            case Lost(why=why, reached=reached):
                offer.lost = True
                offer.asked.clear()
                if not reached:  # its ranks live, and would miss it
                    delivery.fail(why)
            case Refusal(id=number, why=why):
                self._refused(delivery, offer, number, why)
            case Full(id=number):
                self._refused(delivery, offer, number, str(message.error()))
            case Imported(id=number, loan=loan):
                offer.link.forget(number)
                offer.there[offer.asked.pop(number)] = loan
            case _:
                raise ProtocolError(f"{type(message).__name__} is not an answer to what was offered")
        self._look(delivery)

    def _refused(self, delivery: _Delivery, offer: _Offer, number: int, why: str) -> None:
        offer.link.forget(number)
        del offer.asked[number]  # no more is said to this one
        delivery.fail(f"does not accept the data: {why}")
        self._give_up(offer)

    def _says_nothing(self, delivery: _Delivery, link: HostLink, since: float) -> None:
        silent = Silent(delivery.number, link.agent_pid, time.monotonic() - since)
        delivery.failure = delivery.failure or silent

    def _give_up(self, offer: _Offer) -> None:
        for number in offer.asked:
            # It may take it still: then it is taken back.
            offer.link.asked.replace(number, functools.partial(self._late, offer, number))
        offer.asked.clear()

    def _late(self, offer: _Offer, number: int, message: ToStore | Piece | Lost) -> None:
        if isinstance(message, Imported):
            self.recall([message.loan.segment], [offer.host])
        if not isinstance(message, Later):
            offer.link.forget(number)

    def _look(self, delivery: _Delivery) -> None:
        if delivery not in self._open or any(offer.asked for offer in delivery.offers):
            return
        self._open.remove(delivery)
        offers = [offer for offer in delivery.offers if not offer.lost]
        if delivery.failure is not None:
            delivery.answer(delivery.failure)
        else:
            there = [[offer.there[loan.segment] for loan in delivery.loans] for offer in offers]
            if delivery.answer(Delivered(delivery.number, [offer.host for offer in offers], there)):
                return
        for offer in offers:
            if offer.there:
                self.recall(list(offer.there), [offer.host])
