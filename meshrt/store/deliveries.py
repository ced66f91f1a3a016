"""What is sent to other machines and will not be answered: it is brought there before the message is sent.

Nobody says when the result of an endpoint or a broadcast has arrived, so its sender would not know how long to keep
what that refers to. Instead the receivers' hosts are **offered** the segments, with the pids that are to hold them.
Each host fetches them once (`meshrt.store.imports`) and says where they are there. Only then the message goes out: to
its receivers it is like one of their own machine.

A delivery: ``offered -> there``, or ``-> failed``. It is there when all hosts have said so. If one refuses, or says
nothing for `_PATIENCE`, it has failed, and is **recalled** from the others. A host that is lost is left out: so are its
ranks. One that has said nothing is not waited for again until it speaks, which its answers to what it was offered do.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.hostlinks import HostLink, HostLinks
from meshrt.store.lease import Loan
from meshrt.store.protocol import Host
from meshrt.wire.messages import why_of

__all__ = ["Deliveries"]

#: Seconds without a word of a host.
_PATIENCE = 10.0


@dataclass(eq=False)
class _Offer:
    """All segments of a delivery, to one host."""

    host: Host
    link: HostLink
    #: By the number that it was offered with: the segment.
    asked: dict[int, int] = field(default_factory=dict)
    #: By segment: where it is there.
    there: dict[int, Loan] = field(default_factory=dict)
    #: When it was last heard of (monotonic).
    heard: float = 0.0
    lost: bool = False


class _Delivery:
    def __init__(self, loans: Sequence[Loan], answer: Callable[[dict[str, Any]], bool]) -> None:
        self.loans = loans
        self.answer = answer
        self.offers: list[_Offer] = []
        self.why = ""
        #: The agent that has said nothing, and for how many seconds, if that is why.
        self.silent: tuple[int, float] | None = None

    @property
    def finished(self) -> bool:
        return not any(offer.asked for offer in self.offers)


class Deliveries:
    """One thread: that of the agent's selector."""

    def __init__(self, links: HostLinks) -> None:
        self._links = links
        self._open: set[_Delivery] = set()

    def begin(self, loans: Sequence[Loan], to: Sequence[Host], answer: Callable[[dict[str, Any]], bool]) -> None:
        """Bring segments of this store to other hosts, whose processes hold them then.

        ``answer`` is called, now or later, with ``{"to": the hosts that have them, "there": for each its loans}``, or
        with a refusal. It returns whether anybody was told: if not, they are recalled.
        """
        delivery = _Delivery(loans, answer)
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
                delivery.why = delivery.why or f"a host that it goes to cannot be reached: {why_of(error)}"
                continue
            offer = _Offer(host, link, heard=time.monotonic())
            delivery.offers.append(offer)
            for loan in loans:
                told = functools.partial(self._told, delivery, offer)
                offer.asked[link.ask("offer", told, loan=loan, pids=host.pids)] = loan.segment
        self._look(delivery)

    def recall(self, segments: Sequence[int], to: Sequence[Host]) -> None:
        """What was brought to these hosts was not sent."""
        for machine, agent_pid, pids in to:
            link = self._links.find(machine, agent_pid)
            if link is not None:
                link.tell("recall", segments=segments, pids=pids)

    def tick(self) -> None:
        """Give up hosts that say nothing; tell the others that somebody is at it."""
        silent = time.monotonic() - _PATIENCE
        for delivery in tuple(self._open):
            for offer in delivery.offers:
                if offer.asked and offer.heard < silent:
                    offer.link.silence.in_vain(offer.heard)
                    self._says_nothing(delivery, offer.link, offer.heard)
                    self._give_up(delivery, offer)
            if delivery in self._open:
                delivery.answer({"t": "wait"})

    def _told(self, delivery: _Delivery, offer: _Offer, message: dict[str, Any]) -> None:
        offer.heard = time.monotonic()
        if message["t"] == "wait":
            return
        if message["t"] == "lost":
            offer.lost = True
            offer.asked.clear()
        elif message["t"] == "no":
            why = f"a host that it goes to does not take it: {message['why']}"
            offer.link.forget(message["n"])
            del offer.asked[message["n"]]  # no more is said to this one
            delivery.why = delivery.why or why
            self._give_up(delivery, offer)
            return
        elif message["t"] == "ok":
            loan = Loan(*message["loan"])
            offer.link.forget(message["n"])
            offer.there[offer.asked.pop(message["n"])] = loan
        else:
            raise ProtocolError(f"{message['t']!r} from a store")
        self._look(delivery)

    def _says_nothing(self, delivery: _Delivery, link: HostLink, since: float) -> None:
        if not delivery.why:
            seconds = time.monotonic() - since
            delivery.why = f"a host that it goes to has said nothing for {round(seconds, 1):g} s"
            delivery.silent = link.agent_pid, seconds

    def _give_up(self, delivery: _Delivery, offer: _Offer) -> None:
        for number in offer.asked:
            # It may take it still: then it is taken back.
            offer.link.asked[number] = functools.partial(self._late, offer, number)
        offer.asked.clear()
        self._look(delivery)

    def _late(self, offer: _Offer, number: int, message: dict[str, Any]) -> None:
        if message["t"] == "ok":
            self.recall([Loan(*message["loan"]).segment], [offer.host])
        if message["t"] != "wait":
            offer.link.forget(number)

    def _look(self, delivery: _Delivery) -> None:
        if not delivery.finished or delivery not in self._open:
            return
        self._open.remove(delivery)
        offers = [offer for offer in delivery.offers if not offer.lost]
        if delivery.why:
            silent = {} if delivery.silent is None else {"silent": delivery.silent}
            delivery.answer({"t": "no", "why": delivery.why, **silent})
        else:
            there = [[offer.there[loan.segment] for loan in delivery.loans] for offer in offers]
            if delivery.answer({"to": [offer.host for offer in offers], "there": there}):
                return
        for offer in offers:
            if offer.there:
                self.recall(list(offer.there), [offer.host])
