"""Asyncio tasks beside the messages of one actor: calls of concurrent endpoints, and errands.

A call: ``started -> running -> answered``, or ``-> cancelled`` at the end of the grace: then its caller is told the
fate of the rank, or that the actor was stopped, if only the actor was.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshrt.actor.callers import Callers
from meshrt.actor.execute import Execution, Executor
from meshrt.wire.handshake import Identity

if TYPE_CHECKING:
    import asyncio

__all__ = ["ConcurrentCalls"]

#: Seconds for running calls, when the actor alone is stopped without a grace; in a rank that ends that of the mesh
#: counts.
_GRACE = 5.0
#: Seconds for the calls that were cancelled then.
_CANCELLED = 1.0


class ConcurrentCalls:
    """Belongs to the actor's event loop; `running` may be read by other threads."""

    def __init__(self, executor: Executor, callers: Callers) -> None:
        self._executor = executor
        self._callers = callers
        self._running: dict[asyncio.Task[None], Execution] = {}
        #: The number of the next call, by endpoint: distinct names of tasks.
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))

    @property
    def running(self) -> dict[asyncio.Task[None], Execution]:
        """Return the running calls, by their asyncio tasks, in the order in which they began. Any thread."""
        return dict(self._running)

    def start(self, execution: Execution) -> None:
        """Run a call, or an errand. It begins in the loop's next iteration, after those that were started before."""
        import asyncio  # start-up: only actors with async endpoints pay for it

        endpoint = execution.context.endpoint
        name = f"{endpoint}-{next(self._numbers[endpoint])}"
        task = asyncio.get_running_loop().create_task(self._run(execution), name=name)
        self._running[task] = execution
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        execution = self._running.pop(task)
        link = execution.context.link
        if not task.cancelled() or link is None:
            return
        # It was cancelled before its first step: afterwards `_run` answers.
        if execution.withdrawn and execution.owes_answer():
            self._callers.withdrawn(link, execution.call_id)
        elif self._executor.is_cut and (answer := self._executor.cancelled(execution)):
            self._callers.answer(link, answer)

    async def _run(self, execution: Execution) -> None:
        answer = await self._executor.run_async(execution)
        if answer and execution.context.link is not None:
            self._callers.answer(execution.context.link, answer)
            self._callers.keep_backlogs()  # the other tasks may change what was returned
        if self._executor.untold:
            self._executor.tell()

    def cancel(self) -> None:
        """Cancel all of them: the grace has ended."""
        for task, execution in self.running.items():
            if not execution.interrupted:
                execution.interrupted = True
                task.cancel()

    def runs(self, caller: Identity, call_id: int) -> bool:
        """Whether a call runs. Any thread."""
        return any(execution.is_call(caller, call_id) for execution in self.running.values())

    def withdraw(self, caller: Identity, call_id: int) -> None:
        """Cancel a call, if it runs: its caller does not want its answer any more."""
        for task, execution in self.running.items():
            if execution.is_call(caller, call_id) and not execution.interrupted:
                execution.interrupted = execution.withdrawn = True
                task.cancel()

    async def finish(self) -> None:
        """Wait until all have ended, without a limit: the end of the rank cancels them."""
        import asyncio  # start-up: only actors with async endpoints pay for it

        while self._running:
            await asyncio.wait(self.running)

    async def finish_soon(self, grace: float | None = None) -> None:
        """Wait until all have ended, and cancel those that take longer than ``grace`` seconds."""
        import asyncio  # start-up: as above

        if self._running:
            await asyncio.wait(self.running, timeout=_GRACE if grace is None else grace)
        if self._running:
            self._executor.is_cut = True  # a cancelled call must be answered: its caller is told in no other way
            self.cancel()
            await asyncio.wait(self.running, timeout=_CANCELLED)
        for execution in self.running.values():
            # It ignores the cancellation. Its caller is told that it was cancelled, and nothing afterwards.
            answer = self._executor.cancelled(execution)
            execution.no_reply = True
            if answer and execution.context.link is not None:
                self._callers.answer(execution.context.link, answer)
