"""The router's way to the program: one connection of a terminal, on the router's event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from meshrt.debug.dap.operations import Rank, Which
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Data, Operation
from meshrt.inspect.programs import telling_slow
from meshrt.transport import tools

__all__ = ["ProgramLink"]

A = TypeVar("A", bound=Data)


class ProgramLink:
    """On the loop, unless said otherwise.

    Args:
        program: Which one.
        on_event: Called with what comes without being asked for.
        on_close: Called once when the program, or the connection, has ended.
    """

    def __init__(
        self, program: tools.Program, on_event: Callable[[str, Body], None], on_close: Callable[[], None]
    ) -> None:
        self.program = program
        self._loop = asyncio.get_running_loop()
        #: What is to be done there, and whether it has been told that there is something.
        self._pending: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._told = False
        with telling_slow(program):
            self._connection = tools.connect(
                program, lambda event, body: self._soon(on_event, event, body), lambda: self._soon(on_close)
            )

    @property
    def is_elsewhere(self) -> bool:
        """Whether the program runs on another machine (``--via``)."""
        return bool(self.program.via)

    def _soon(self, function: Callable[..., None], *args: object) -> None:
        """Any thread. The loop is told once of many: each time costs room in the pipe that signals come through."""
        self._pending.append((function, args))
        if not self._told and not self._loop.is_closed():
            self._told = True
            self._loop.call_soon_threadsafe(self._do)

    def _do(self) -> None:
        self._told = False  # first: what is added from here on is told of anew
        while self._pending:
            function, args = self._pending.popleft()
            self._loop.call_soon(function, *args)

    async def ask(self, operation: Operation[A]) -> A:
        """Ask, and return the answer. Raises MeshError with a refusal, ConnectionError."""
        answer: asyncio.Future[Body] = self._loop.create_future()

        def settle(body: Body | None, problem: Exception | None) -> None:
            if answer.done():
                return  # the caller is gone
            if problem is not None:
                answer.set_exception(problem)
            else:
                answer.set_result(body or {})

        self._connection.begin(operation, lambda body, problem: self._soon(settle, body, problem))
        return operation.read_answer(await answer)

    async def which(self, mesh: str, ranks: str) -> Sequence[Rank]:
        """Return the living ranks of a mesh's or an actor's name and a selection.

        Raises:
            MeshError: There are no such ranks.
            ConnectionError: The program has ended.
        """
        return (await self.ask(Which(mesh, ranks))).ranks

    def post(self, operation: Operation[Data]) -> None:
        """Send an operation without waiting; reports tell the result. Does nothing if the program is gone."""
        try:
            self._connection.begin(operation, lambda _body, _problem: None)
        except ConnectionError:
            return  # `on_close` says so

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
