"""Questions to many ranks, as a plug-in of the root puts them, from the thread of a test."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.operations import GroupedOperation, body_of
from meshrt.inspect.records import ReadStacks
from meshrt.inspect.tree import Stacks
from meshrt.mesh.program import start_root
from tests.support.untyped import Group, asked_of_many, untyped
from tests.support.waiting import wait_until

__all__ = ["Question", "everybody", "stacks_of", "where"]


class Question:
    """One gather, and all it has reported."""

    def __init__(
        self,
        operation: str | GroupedOperation[Any, Any],
        body: Mapping[str, Any] | None = None,
        *,
        targets: Mapping[str, Sequence[int]] | None = None,
        seconds: float = 20.0,
        stack_suffices: bool = False,
    ) -> None:
        self.reports: list[Gathered[Any, Any]] = []
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._number = 0
        self.returned = False
        self.early = False
        self._root = start_root()

        def begin() -> None:
            ranks = everybody() if targets is None else targets
            asked = asked_of_many(operation, **(body or {})) if isinstance(operation, str) else operation
            try:
                self._number = self._root.services.gather(
                    ranks, asked, seconds, self._report, stack_suffices=stack_suffices
                )
            except Exception as error:
                self._error = error
            self.returned = True
            with self._changed:
                self._changed.notify_all()

        self._root.loop.post(begin)
        with self._changed:
            assert self._changed.wait_for(lambda: self.returned, 20)
        if self._error is not None:
            raise self._error

    def _report(self, gathered: Gathered[Any, Any]) -> None:
        with self._changed:
            self.early |= not self.returned
            self.reports.append(gathered)
            self._changed.notify_all()

    def leave(self) -> None:
        self._root.loop.post(lambda: self._root.services.leave_gather(self._number))

    @property
    def done(self) -> bool:
        return bool(self.reports) and self.reports[-1].done

    @property
    def answers(self) -> list[Answered[Any, Any] | Unanswered]:
        return [group for report in tuple(self.reports) for group in report.groups]

    @property
    def groups(self) -> list[Group]:
        return [untyped(group) for group in self.answers]

    def wait(self, seconds: float = 30) -> list[Group]:
        """Return all answers once it is done, equal ones as one group; every rank was reported once.

        An agent does not wait long for ranks that are late: equal answers may come in several groups.
        """
        wait_until(lambda: self.done, seconds, "all answers")
        assert not self.early
        ranks = [(group.mesh_id, rank) for group in self.groups for rank in group.ranks]
        assert len(ranks) == len(set(ranks))
        assert [report.done for report in self.reports] == [False] * (len(self.reports) - 1) + [True]
        return _joined(self.groups)

    def kinds(self) -> dict[str, list[int]]:
        """Return the ranks of each kind of answer."""
        found: dict[str, list[int]] = {}
        for group in self.groups:
            found.setdefault(group.kind, []).extend(group.ranks)
        return {kind: sorted(ranks) for kind, ranks in found.items()}


def _joined(groups: Sequence[Group]) -> list[Group]:
    joined: list[Group] = []
    for group in groups:
        for number, other in enumerate(joined):
            if (other.mesh_id, other.kind, other.same) == (group.mesh_id, group.kind, group.same):
                ranks = tuple(sorted((*other.ranks, *group.ranks)))
                joined[number] = other._replace(ranks=ranks, per={**other.per, **group.per})
                break
        else:
            joined.append(group)
    return joined


def everybody() -> dict[str, list[int]]:
    """Return every rank that lives, by mesh."""
    return {mesh.mesh_id: list(mesh.alive) for mesh in start_root().services.meshes()}


def stacks_of(question: Question) -> Stacks:
    """Merge the answers of a question that is done."""
    stacks = Stacks()
    for mesh in start_root().services.meshes():
        stacks.expect(mesh.mesh_id, mesh.name, mesh.shape, mesh.shape.ranks())
    question.wait()
    for group in question.answers:
        stacks.add(group)
    return stacks


def where(actor: str = "", *, verbose: bool = False, stack_suffices: bool = True) -> dict[int, list[dict[str, Any]]]:
    """Return the records of every rank that has answered, with ``"since"`` and ``"cpu"``."""
    asked = ReadStacks(actor, verbose)
    question = Question(asked, stack_suffices=stack_suffices)
    question.wait()
    found: dict[int, list[dict[str, Any]]] = {}
    for group in question.answers:
        for rank in group.ranks:
            if isinstance(group, Answered):
                per = group.per[rank]
                found[rank] = [
                    {**body_of(record), "since": since, "cpu": cpu}
                    for record, since, cpu in zip(group.same.threads, per.since, per.cpu, strict=True)
                ]
    return found
