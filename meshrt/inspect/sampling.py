"""The threads and tasks of a rank as a user reads them: one sample each.

A thread is ``running``, ``blocked`` (at one instruction, without processor time), ``idle`` (an actor
that waits for messages) or ``stopped`` (in the debugger). A task that waits for something is blocked; one that only
waits for its turn is as its loop's thread is.

What a blocked thread waits in, as ``self.lock.acquire`` or ``time.sleep``, is read from the byte code: the loads that
begin where the call begins make up the name of what is called. It is not known if the interpreter keeps no columns
(``-X no_debug_ranges``).
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from meshrt.hooks.facts import ActorState, EndpointCall, Wait
from meshrt.inspect.records import Kind, Record
from meshrt.inspect.stacks import Mark, Process, Stack, ThreadLook, Threads, entries_of, frames_of, kernel_runs
from meshrt.inspect.tasks import TaskLook, Tasks
from meshrt.inspect.visibility import is_hidden_file
from meshrt.program.words import BLOCKED, IDLE, NOT_RUNNING, RUNNING, STOPPED

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["Sample", "Sampler", "holder"]

#: Most samples of one rank in an answer.
_MOST = 100
#: Seconds. Two looks closer than this may both fall into a time in which a thread got no processor.
_CLOSE = 0.5
#: Characters of the name of what a thread waits in.
_LONGEST = 60


class Sample(msgspec.Struct):
    """One thread or task at one look."""

    name: str
    kind: Kind
    actor: str
    endpoint: str
    state: str
    stack: Stack
    mark: Mark
    waits: str = ""
    #: The calls whose answers it waits for.
    calls: Sequence[Wait] = ()
    #: It runs beside other work of the actor, so what it waits for blocks no other call.
    beside: bool = False

    def record(self) -> Record:
        """Return the part of it that may be the same on many ranks."""
        frames = frames_of(self.stack)
        return Record(
            self.name, self.kind, self.actor, self.endpoint, self.state, frames, holder=self.waits, beside=self.beside
        )

    def since(self) -> float:
        """Return for how many seconds it is known to be at the same place; 0.0 for a running or idle one."""
        return round(self.mark.seen - self.mark.since, 3) if self.state in NOT_RUNNING else 0.0


class Sampler:
    """Looks at this process; keeps only since when each thread and task has been where it is.

    Args:
        process: As in `meshrt.inspect.stacks.Threads`.
    """

    def __init__(self, process: Process | None = None) -> None:
        self._process = process
        self._threads = Threads(process)
        self._tasks = Tasks()

    def pulse(self, actors: Sequence[ActorState]) -> dict[str, tuple[EndpointCall, Mark]]:
        """Note where every thread and task is. Return call and mark of each actor that runs a message, by its name."""
        looks = self._threads.look(stacks=False)
        marks = {}
        for actor in actors:
            tasks = self._tasks_of(actor)
            look = looks.get(actor.thread or 0)
            call, serving = _serving(actor, tasks)
            if call is not None and look is not None:
                waits = serving is not None and not _advances(serving, tasks)
                marks[actor.name] = call, serving.mark if serving is not None and waits else look.mark
        return marks

    def samples(self, actors: Sequence[ActorState], *, actor: str = "", verbose: bool = False) -> list[Sample]:
        """Return a sample of every thread and task that is in user code, and of every actor; at most `_MOST`.

        Args:
            actor: Those of this actor only; "" for all.
            verbose: Also threads that are in the runtime's own code.
        """
        looks = self._threads.look(stacks=True)
        samples = []
        for one in actors:
            look = looks.pop(one.thread or 0, None)
            if look is not None and actor in ("", one.name):
                samples += self._actor(one, look, verbose)
        if not actor:
            for look in looks.values():
                sample = _thread(look, verbose)
                if any(not is_hidden_file(entry.file) for entry in sample.stack) or verbose:
                    samples.append(sample)
        return samples[:_MOST]

    def _tasks_of(self, actor: ActorState) -> dict[object, TaskLook]:
        """Return looks at the tasks of an actor's event loop, by the task, the oldest first."""
        return {look.task: look for look in self._tasks.look(actor.loop)} if _lives(actor.loop) else {}

    def _actor(self, actor: ActorState, look: ThreadLook, verbose: bool) -> list[Sample]:
        own = _thread(look, verbose)
        own.kind, own.actor = "actor", actor.name
        in_user_code = any(not is_hidden_file(entry.file) for entry in own.stack)
        # Of what waits for its turn. Where no user code is on the stack, the suspended call itself is stopped.
        turn = BLOCKED if own.state == STOPPED and in_user_code else own.state
        tasks = self._tasks_of(actor)
        call, serving = _serving(actor, tasks)
        own.endpoint = call.endpoint if call is not None else ""
        own.beside = call is not None and call is not actor.call
        waiters = serving.waiters if serving is not None and not serving.running else [actor.thread]
        if self._process is not None:
            own.calls = [wait for waiter in waiters if (wait := self._process.wait_of(waiter)) is not None]
        samples = []
        if serving is not None and not serving.running:
            # The endpoint is suspended; what the thread runs, if anything, is another task or a callback.
            if in_user_code:
                running = next((task for task in tasks.values() if task.running), None)
                name = "callback" if running is None else running.name
                endpoint = "" if running is None else _endpoint(actor, running)
                samples.append(Sample(name, "task", actor.name, endpoint, own.state, own.stack, own.mark, own.waits))
            own.stack = entries_of(serving.stack, verbose=verbose)[0] if own.endpoint else []
            if _advances(serving, tasks):
                own.state, own.waits = turn, serving.awaits if turn == BLOCKED else ""
            elif in_user_code or own.state != STOPPED:
                own.mark, own.state, own.waits = serving.mark, BLOCKED, serving.awaits
            in_user_code = bool(own.stack)
        if own.state == BLOCKED and not in_user_code and actor.exits:
            own.waits = f"its exit, by {actor.exits}"
        if not own.endpoint and not in_user_code:
            own.state, own.waits = IDLE, f"has not sent the answer of {_calls(actor.owes)}" if actor.owes else ""
            own.stack = own.stack if verbose else []
        for task in tasks.values():
            stack = entries_of(task.stack, verbose=verbose)[0]
            if task is not serving and not task.running and stack:
                endpoint, state = _endpoint(actor, task), turn if _advances(task, tasks) else BLOCKED
                awaits = task.awaits if state == BLOCKED else ""
                samples.append(Sample(task.name, "task", actor.name, endpoint, state, stack, task.mark, awaits))
        return [own, *samples]


def _advances(look: TaskLook, tasks: Mapping[object, TaskLook]) -> bool:
    """Whether a task runs, or waits for nothing but its turn, or for a task of which that is so."""
    left, seen = [look], {id(look)}
    while left:
        each = left.pop()
        if each.running or each.ready:
            return True
        others = [tasks[waiter] for waiter in each.waiters if waiter in tasks]
        left += [other for other in others if id(other) not in seen]
        seen.update(map(id, others))
    return False


def _calls(endpoints: Sequence[str]) -> str:
    return " and ".join(f"{name}()" for name in endpoints)


def _lives(loop: AbstractEventLoop | None) -> TypeGuard[AbstractEventLoop]:
    return loop is not None and not loop.is_closed()


def _serving(actor: ActorState, tasks: Mapping[object, TaskLook]) -> tuple[EndpointCall | None, TaskLook | None]:
    """Return the call that stands for the actor, and the task of its event loop in which that call is awaited.

    If all calls are concurrent, it is the one that runs, or else the oldest.
    """
    if actor.call is not None or not actor.concurrent:
        return actor.call, tasks.get(actor.task)
    found = next((each for each in tasks.values() if each.running and each.task in actor.concurrent), None)
    if found is not None:
        return actor.concurrent[found.task], found
    call = actor.serves
    return call, tasks.get(actor.task_of(call)) if call is not None else None


def _endpoint(actor: ActorState, look: TaskLook) -> str:
    call = actor.concurrent.get(look.task)
    return call.endpoint if call is not None else ""


def _thread(look: ThreadLook, verbose: bool) -> Sample:
    stack, stopped = entries_of(look.stack, verbose=verbose)
    mark = look.mark
    state = STOPPED if stopped else BLOCKED if mark.is_blocked() else RUNNING
    if state == BLOCKED and mark.seen - mark.since < _CLOSE and kernel_runs(look.native_id):
        state = RUNNING
    waits = ""
    if state == BLOCKED:
        shown = [entry for entry in stack if not is_hidden_file(entry.file)]
        waits = holder(shown[-1].code, shown[-1].lasti) if shown else ""
    return Sample(look.name, "thread", "", "", state, stack, mark, waits)


@lru_cache(maxsize=512)
def holder(code: CodeType, lasti: int) -> str:
    """Return the dotted name of what the instruction at ``lasti`` calls or enters; "": not known, or neither."""
    if lasti < 0:
        return ""
    # In a frame that has called a Python function, ``lasti`` is after the call instruction, in that one's caches.
    instructions = [instruction for instruction in dis.get_instructions(code) if instruction.offset <= lasti]
    here = instructions.pop() if instructions else None
    position = here.positions if here is not None else None
    if here is None or position is None or position.col_offset is None:
        return ""
    if here.opname in ("SEND", "YIELD_VALUE", "RESUME", "GET_AWAITABLE"):
        return ""
    enters = here.opname.startswith(("BEFORE_WITH", "BEFORE_ASYNC_WITH"))
    if here.opname.startswith("CALL") and instructions and instructions[-1].opname == "LOAD_SPECIAL":  # since 3.14
        enters = True
        while instructions and instructions[-1].opname in ("LOAD_SPECIAL", "SWAP", "COPY"):
            instructions.pop()
    if enters:
        # Its own columns are those of the statement; the context manager was loaded just before.
        position = (instructions[-1].positions if instructions else None) or position
    begin = (position.lineno, position.col_offset)
    names: list[str] = []
    for instruction in instructions:
        at = instruction.positions
        if at is None or (at.lineno, at.col_offset) != begin:
            continue
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
            loaded = instruction.argval
            names = [loaded[0] if isinstance(loaded, tuple) else str(loaded)]
        elif instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and names:
            names.append(str(instruction.argval))
    text = ".".join(names)
    if enters:
        text = f"with {text}" if text else "with"
    elif here.opname.startswith("FOR_ITER"):
        text = f"for ... in {text}" if text else "for"
    elif not here.opname.startswith(("CALL", "PRECALL")):
        return ""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
