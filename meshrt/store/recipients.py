"""The receivers of a message that has shared memory: those on this machine, and those on each other machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshrt.store.lease import Loan
from meshrt.store.messages import Deliver, Delivered, Host, Recall, TakeBack
from meshrt.store.registrar import Registrar
from meshrt.store.registrars import Registrars
from meshrt.store.unsent import Unsent
from meshrt.transport.interrupts import installed
from meshrt.wire.handshake import Identity

__all__ = ["Recipients"]

#: References in one message to a store, and in its answer.
_MOST = 10_000


class Recipients:
    """The receivers of one message. One thread.

    Args:
        receivers: None: they are not known yet.
        unsent: Records what they hold from now on.

    Attributes:
        here: Pids on this machine.
        away: Those on other machines, by the store that they share.
    """

    def __init__(self, registrars: Registrars, receivers: Sequence[Identity] | None, unsent: Unsent) -> None:
        self._registrars = registrars
        self._unsent = unsent
        self.known = receivers is not None
        self.here: list[int] = []
        self.away: list[Host] = []
        #: What was brought to which receivers, by store.
        self._brought: list[tuple[Registrar, list[int], Sequence[Host]]] = []
        own = registrars.identity().machine if receivers else 0
        found: dict[tuple[int, int], list[int]] = {}
        for machine, agent_pid, pid in receivers or ():
            pids = self.here if machine == own else found.setdefault((machine, agent_pid), [])
            pids.append(pid)
        self.away = [Host(*host, pids) for host, pids in found.items()]

    def give(self, loans: Sequence[Loan]) -> None:
        """Those on this machine hold these segments once more. Raises MeshError, OSError."""
        if self.here:
            for agent_pid, part in _by_agent(loans, _MOST):
                registrar, segments = self._registrars.of(agent_pid), [loan.segment for loan in part]
                with installed():
                    registrar.give(segments, self.here)
                    self.shared(registrar, segments)

    def shared(self, registrar: Registrar, segments: Sequence[int]) -> None:
        """Those on this machine hold these segments of a store; called in the shielded section of that."""
        if self.here:
            self._unsent.note(lambda: registrar.tell_later(TakeBack(segments, self.here)))

    def bring(self, loans: Sequence[Loan]) -> list[tuple[Sequence[Loan], Sequence[int] | None]]:
        """Have those on other machines hold these segments, which their hosts fetch: this waits until they are there.

        Returns:
            For each store ``(loans, pids)``: where they are there. A host that is lost is left out.
        Raises:
            MeshError, OSError: A host does not take them, and so none has them; or their own store is lost.
        """
        self._unsent.note(self.recall)
        there: dict[tuple[int, int], dict[int, Loan]] = {(host.machine, host.agent_pid): {} for host in self.away}
        try:
            for agent_pid, part in _by_agent(loans, _MOST // (1 + len(self.away))):
                registrar = self._registrars.of(agent_pid)
                with installed():
                    answer = self._deliver(registrar, part)
                    self._brought.append((registrar, [loan.segment for loan in part], answer.to))
                for (machine, agent, _), found in zip(answer.to, answer.there, strict=True):
                    there[machine, agent].update((loan.segment, loan) for loan in found)
        except BaseException:
            self.recall()
            raise
        whole = [(host, there[host.machine, host.agent_pid]) for host in self.away]
        return [([at[loan.segment] for loan in loans], host.pids) for host, at in whole if len(at) == len(loans)]

    def _deliver(self, registrar: Registrar, loans: Sequence[Loan]) -> Delivered:
        return registrar.ask(lambda number: Deliver(number, loans, self.away), Delivered)

    def recall(self) -> None:
        """What `bring` has brought was not sent."""
        while self._brought:
            registrar, segments, hosts = self._brought.pop()
            registrar.tell_later(Recall(segments, hosts))


def _by_agent(loans: Sequence[Loan], most: int) -> Iterator[tuple[int, list[Loan]]]:
    """Yield the segments that each store knows of, so many at a time."""
    found: dict[int, list[Loan]] = {}
    for loan in loans:
        found.setdefault(loan.agent_pid, []).append(loan)
    for agent_pid, of_agent in found.items():
        for start in range(0, len(of_agent), max(1, most)):
            yield agent_pid, of_agent[start : start + max(1, most)]
