"""Requests that list, resume and pause threads; and those that leave or end what is debugged."""

from __future__ import annotations

from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.requests.table import MeshSession, RankSession, Request
from meshrt.debug.dap.router.view import LATER, Answer
from meshrt.debug.dap.wire import Message, arguments_of, response
from meshrt.errors import UsageError

#: The classes are found by their commands.
__all__: list[str] = []

#: The thread that represents all ranks in the session of the mesh: an IDE offers to pause a thread.
_ALL = 1


class Threads(Request, frozen=True, tag="threads"):
    """List the threads."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        return {"threads": [{"id": _ALL, "name": mesh.summary()}]}

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        return {"threads": await ranks.threads()}


class Pause(Request, frozen=True, tag="pause"):
    """Stop a thread."""

    thread_id: int | None = None

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        text = await mesh.run_line("pause")
        mesh.write(response(message))
        mesh.said(text)
        return LATER

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        await ranks.request(ranks.at(self.thread_id), "pause", {})
        return None


class Continue(Request, frozen=True, tag="continue"):
    """Resume one thread, or all."""

    thread_id: int | None = None
    single_thread: bool | None = None

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        # If no rank is stopped, this withdraws a pause for which no rank has stopped yet.
        threads = ranks.at(self.thread_id) if self.single_thread else ranks.stopped() or ranks.pausing()
        await ranks.request(threads, "continue", {})
        for member, _ in threads:
            if not member.link.stops:  # otherwise it has stopped again, or has not resumed
                ranks.runs(member)
        return {"allThreadsContinued": not self.single_thread}


class _Step(Request, frozen=True):
    thread_id: int | None = None
    single_thread: bool | None = None

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        """Step the chosen rank, or all that are stopped (``meshStep``)."""
        chosen = ranks.at(self.thread_id)
        threads = ranks.stopped() if ranks.step_all and not self.single_thread else chosen
        await ranks.request(threads, message["command"], arguments_of(message), looked=chosen[0][0])
        return None


class Next(_Step, frozen=True, tag="next"):
    """Step over calls."""


class StepIn(_Step, frozen=True, tag="stepIn"):
    """Step into a call."""


class StepOut(_Step, frozen=True, tag="stepOut"):
    """Step out of a function."""


class Disconnect(Request, frozen=True, tag="disconnect"):
    """Leave the ranks, which resume."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        mesh.write(response(message))
        mesh.leave()
        return LATER

    def at_rank(self, rank: RankSession, message: Message) -> Answer:
        return rank.leave(message)

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        await ranks.leave(message)
        return LATER


class Terminate(Request, frozen=True, tag="terminate"):
    """End what is debugged: not offered."""

    def at_rank(self, rank: RankSession, message: Message) -> Answer:
        raise UsageError("only the program can end a rank; disconnect detaches from the rank")

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        raise UsageError("only the program can end ranks; disconnect detaches from the ranks")
