"""A rank: the life of the freshly forked process.

::

    main thread      the first actor's mailbox (user code)
    further actors   a thread each
    meshrt-control   the control thread

It ends when it is told to stop and its actors have ended, and when its agent dies (PDEATHSIG). By itself it ends on
SIGTERM, as after ``stop()``, and when a task of an actor calls ``sys.exit``, without serving more.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import queue
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from meshrt.actor import pdbhook
from meshrt.actor.actors import ActorHost
from meshrt.actor.cancelling import Interrupting
from meshrt.actor.context import current_call
from meshrt.actor.control import ControlThread
from meshrt.actor.described import described
from meshrt.actor.ending import ActorEnds, StopInterrupt, hold_sigterm_in_forks
from meshrt.actor.errors import describe_exception, tell_stray, type_name
from meshrt.actor.execute import Executor
from meshrt.actor.exiting import InterpreterExit, exit_code
from meshrt.actor.faults import Supervise, failed_inits, lost_ranks
from meshrt.actor.headroom import SHORTAGES, headroom, say_unavailable
from meshrt.actor.inboxes import close_inboxes
from meshrt.actor.mailbox import Mailbox
from meshrt.actor.output import LineOutput, install_output
from meshrt.actor.records import RankRecords
from meshrt.actor.supervising import Supervising
from meshrt.errors import MeshError
from meshrt.hooks.facts import UNRAISABLE, ActorState, Body, EndpointCall, Wait, Workload
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import (
    Answers,
    Data,
    Nothing,
    Operation,
    Report,
    Served,
    answers_of,
    body_of,
    server,
    slow_server,
)
from meshrt.hooks.plugins import plugins
from meshrt.hooks.table import hooks
from meshrt.host.child import Birth, Plumbing
from meshrt.host.pulse import STACK_SIGNAL
from meshrt.selection import Shape
from meshrt.store.store import Store
from meshrt.transport.connecting import Opened
from meshrt.transport.process import ProcessRuntime, set_runtime
from meshrt.transport.writing import write_atomic
from meshrt.wire.addresses import HostAddress, RankAddress, Way
from meshrt.wire.clients import Described, ReadEndpoints
from meshrt.wire.codec import text_of
from meshrt.wire.errors import in_brief
from meshrt.wire.operations import (
    ActorSpawned,
    AllowRestarts,
    Cut,
    CutOff,
    EndActor,
    Ended,
    EndMade,
    FilePart,
    Held,
    Hold,
    LogLevels,
    Relayed,
    RelayTo,
    Restarted,
    Stopped,
    Told,
    Unhandled,
    Watch,
    WhenBorn,
    WhenRestarted,
)
from meshrt.wire.tree import Event, Hint

if TYPE_CHECKING:
    from meshrt.hooks.services import Waited

__all__ = ["MAIN_SIGNAL", "RankProcess", "rank_main"]

Q = TypeVar("Q")
A = TypeVar("A", bound=Data)

#: Seconds for running calls, when this rank ends without a request of the mesh; as in ``ProcMesh.stop()``.
GRACE = 5.0
#: Seconds between the interrupt of calls that do not end and SIGKILL; as in the agent.
_KILL_AFTER = 0.5
#: Seconds for the last answers of the control thread.
_SETTLE = 1.0
#: How many calls are named when they are cut off.
_CALLS = 20
#: Interrupts the main thread at any place; a real-time signal with no other use.
MAIN_SIGNAL = signal.SIGRTMIN + 6


class RankProcess:
    """The services of this rank (`meshrt.hooks.services.RankServices`), and its life."""

    def __init__(self, birth: Birth, plumbing: Plumbing, lost: Callable[[], object] = lambda: os._exit(1)) -> None:
        self.mesh_id = birth.mesh_id
        self.mesh_name = birth.mesh_name
        self.rank = birth.rank
        self.pid = os.getpid()
        self.host_name = birth.host
        self.run_directory = birth.kept_at or birth.run_directory
        self.elsewhere = bool(birth.kept_at)
        self.operations: dict[str, Callable[[Body], Body | None]] = {}
        self.signals_sent = self.signals_handled = 0
        self.signalled_ns = 0
        self.in_signal = False
        #: Of `MAIN_SIGNAL`.
        self._handler: Callable[[int, types.FrameType | None], object] = self.on_main_signal
        self._birth = birth
        self._main_queue: queue.SimpleQueue[Mailbox | None] = queue.SimpleQueue()
        self._stopping = False
        #: The end was not made shorter: by an error of the program, or because the grace is over.
        self._drains = True
        self._terminated = False
        #: The next SIGTERM is meant for the call that ran when it was sent.
        self._term_spares_cleanup = False
        self._exit: BaseException | None = None
        self._interpreter_exit = InterpreterExit()
        self._outputs: Sequence[LineOutput] = ()
        self._records = RankRecords(self.report, self._keep_line, lambda: self.runtime.driver.clock.runs_typed)
        self._plumbing = plumbing
        self.host = self._make_host()
        self.control = ControlThread(
            plumbing.listener,
            plumbing.control,
            birth.secret,
            f"{birth.mesh_id}/{birth.rank}/",
            self.host.deliver,
            self._on_stop,
            self.operations,
            plumbing.door,
            birth.certificate,
            lost,
        )
        self.host.attach(self.control)
        supervising = Supervising(self.host.mailboxes, lambda: self.runtime.driver)
        self.serve(Hold, self._on_hold)
        self.serve(Cut, self._on_cut)
        self.serve(Stopped, self._on_stopped)
        self.serve(LogLevels, self._records.set_levels)
        self.serve(ReadEndpoints, self._read_endpoints)
        self.serve_later(Supervise, supervising.ask)
        self.serve_later(EndActor, self.host.end)
        self.host.end_made = self._end_made

    def _make_host(self) -> ActorHost:
        interrupting = Interrupting(self)
        return ActorHost(self.mesh_id, self.rank, self.report, self._main_queue, self._on_exit, interrupting.interrupt)

    # -- life

    def run(self) -> None:
        """Serve until stopped. Main thread."""
        self._prepare()
        self.control.start(self, self.runtime.driver, self._birth.operations)
        if hooks.proc_ready:
            hooks.run(hooks.proc_ready)
        while (mailbox := self._main_queue.get()) is not None:
            for raw in self._outputs:
                raw.first_actor = raw.first_actor or mailbox.name
            self.host.serve(mailbox)
        self.host.join()
        self.control.settle(_SETTLE)
        self._interpreter_exit.run(whole=self._drains)
        close_inboxes(self.runtime)
        self.flush_output()
        if self._exit is not None:
            raise SystemExit(exit_code(self._exit))
        if self._terminated:
            # Report it as the system does: this rank was not ended by its program.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(self.pid, signal.SIGTERM)

    def _prepare(self) -> None:
        self._outputs = install_output()
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(MAIN_SIGNAL, self.on_main_signal)
        self._take_part()
        hold_sigterm_in_forks()

    def _take_part(self) -> None:
        """Join the program: shared memory, links, the hooks of the interpreter."""
        birth = self._birth
        self._fault_file = os.fdopen(self._plumbing.fault_file, "w", buffering=1)
        self._catch_crashes()
        faulthandler.register(STACK_SIGNAL, self._fault_file, all_threads=True)
        store = Store(
            os.fsdecode(birth.address.directory),
            birth.run_directory,
            birth.secret,
            lambda _seconds: birth.address.agent_pid,
            lambda agent_pid: birth.host if agent_pid == birth.address.agent_pid else "",
            self.control.call_later,
        )
        self.control.identity = store.identity
        self.runtime = ProcessRuntime(
            birth.run_id,
            birth.address,
            birth.secret,
            self,
            store,
            is_root=False,
            host=birth.host,
            mesh_id=birth.mesh_id,
            rank=birth.rank,
            certificate=lambda: self.control.certificate,
        )
        self.runtime.driver.on_error = self._on_error
        set_runtime(self.runtime, on_fork=self._in_forked_child)
        if os.environ.get("MESHRT_POST_MORTEM", "0") not in ("", "0"):
            # Not a hook: loading takes a while, and other exceptions meanwhile must find the debugger's hooks too.
            self.host.before_error.append(functools.partial(plugins.load, "debug", self, in_root=False))
        self.host.before_raised.append(functools.partial(plugins.load, "failure", self, in_root=False))
        sys.breakpointhook = self._breakpointhook
        pdbhook.install()
        threading.excepthook = self._thread_excepthook
        sys.unraisablehook = self._unraisablehook

    def _catch_crashes(self) -> None:
        faulthandler.enable(self._fault_file, all_threads=True)

    # -- the end: on the control thread, unless marked otherwise

    def _on_stop(self, drain: bool, why: str) -> None:
        self._stopping = self.runtime.stopping = True
        self._drains = drain and self._drains
        if why:
            self.host.failed(MeshError(why))
        if hooks.proc_closing:
            hooks.run(hooks.proc_closing)
        self.host.stop(drain)
        if not drain:
            self.host.interrupt(cleanup=False)
            mailbox = self.host.main_mailbox
            if mailbox is not None and mailbox.in_user_code():
                # It may end by itself before the signal comes, and `__cleanup__` begin.
                self._term_spares_cleanup = True
                os.kill(self.pid, signal.SIGTERM)

    def _on_cut(self, _cut: Cut) -> Nothing:
        """The grace is over: report the calls that are cut off, and interrupt them."""
        self._drains = False
        calls = [(call.actor, call.endpoint) for call in self.current_calls()]
        calls += [("", what) for what in self._interpreter_exit.running()]
        work = self.workload()
        self.report(CutOff(calls[:_CALLS], sum(each.waiting for each in work), any(each.more for each in work)))
        os.kill(self.pid, signal.SIGTERM)
        return Nothing()

    def _on_stopped(self, stopped: Stopped) -> Nothing:
        self.host.were_stopped(stopped.actors)
        return Nothing()

    def _read_endpoints(self, asked: ReadEndpoints) -> Described:
        mailbox = self.host.mailboxes.get(asked.actor)
        cls = None if mailbox is None else mailbox.executor.cls
        if cls is None:
            raise MeshError(f"{asked.actor} has no endpoints that can be called: it is being built, or it is a script")
        return described(cls)

    def _end_made(self, actor: str, ended: Callable[[], None]) -> None:
        mailbox = self.host.mailboxes[actor]
        why = "" if mailbox.error is None else text_of(mailbox.error)
        self.ask_later(EndMade(actor, why), lambda _answer, _error: ended())

    def _on_hold(self, hold: Hold) -> Nothing:
        self.runtime.driver.clock.hold(hold.held)
        self.runtime.driver.wake()
        return Nothing()

    def _on_term(self, _number: int, _frame: object) -> None:
        """The first one ends this rank after its messages; when it is ending, user code is interrupted. Main thread."""
        if not self._stopping:
            self._stopping = self._terminated = True
            self.control.call_soon(functools.partial(self._end_alone, True))
            return
        if self._interpreter_exit.runs:
            raise StopInterrupt("this rank is stopping")
        cleanup, self._term_spares_cleanup = not self._term_spares_cleanup, False
        self.control.call_soon(functools.partial(self.host.interrupt, cleanup=cleanup))
        mailbox = self.host.main_mailbox
        if mailbox is not None:
            mailbox.interrupt(cleanup=cleanup)

    def _on_exit(self, executor: Executor, error: BaseException) -> None:
        """A task of an actor wants the process to end. The actor's thread."""
        if self._exit is None:
            self._exit = error
            self.host.failed(error)
            self.control.send(Hint(f"{_exit_text(error)} in a task of {executor.name}"))
            self.control.call_soon(functools.partial(self._end_alone, False))

    def _end_alone(self, drain: bool) -> None:
        """End this rank, as its agent does for a mesh that is stopped."""
        self._on_stop(drain, "")
        self._drains = True
        self.control.call_later(GRACE, functools.partial(os.kill, self.pid, signal.SIGTERM))
        self.control.call_later(GRACE + _KILL_AFTER, self._kill)

    def _kill(self) -> None:
        if self._terminated:
            self.control.send(Hint(f"it did not end within {GRACE:g} s after SIGTERM"))
        os.kill(self.pid, signal.SIGKILL)

    def _in_forked_child(self) -> None:
        """A fork of user code must not hold the sockets of this rank: their end would not be seen."""
        for raw in self._outputs:
            raw.renew_lock()
        self._records.uninstall()
        with contextlib.suppress(OSError):
            self.host.abandon()
            self._plumbing.control.close()
            self._plumbing.listener.close()
            if self._plumbing.door is not None:
                self._plumbing.door.close()
        self._give_back_signals()
        sys.breakpointhook = sys.__breakpointhook__
        hooks.clear()
        plugins.clear()

    def _give_back_signals(self) -> None:
        """In a forked child."""
        if signal.getsignal(signal.SIGTERM) == self._on_term:  # not that of a script
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(MAIN_SIGNAL, signal.SIG_DFL)

    def _thread_excepthook(self, args: threading.ExceptHookArgs) -> None:
        if (self._stopping and args.exc_type.__name__ == "BdbQuit") or issubclass(args.exc_type, ActorEnds):
            return  # resumed from a breakpoint because the mesh stops; or the actor has ended itself there: it is told
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit) and not self._stopping:
            name = args.thread.name if args.thread is not None else "?"
            what = f"thread {name!r}"
            failure = self._tell_stray(args.exc_value, what)
            remote = replace(describe_exception(args.exc_value), failure=failure)
            # Python prints it on the terminal.
            self.report(Unhandled("", what, in_brief(remote), time.monotonic_ns(), said=True))
        threading.__excepthook__(args)

    def _unraisablehook(self, args: sys.UnraisableHookArgs) -> None:
        interrupted = issubclass(args.exc_type, KeyboardInterrupt)  # such as a function of `atexit`
        if args.exc_value is not None and not self._stopping and not interrupted:
            self._tell_stray(args.exc_value, UNRAISABLE)
        sys.__unraisablehook__(args)

    def _tell_stray(self, error: BaseException, what: str) -> str:
        """Report an exception that no endpoint has raised; Python prints it as well."""
        hooks.run(self.host.before_raised)
        return tell_stray(error, None, what)

    def _breakpointhook(self, *args: object, **kwargs: object) -> object:
        """The first ``breakpoint()`` loads the debugger, which takes this hook over."""
        with headroom:
            try:
                plugins.load("debug", self, in_root=False)
            except SHORTAGES as error:
                say_unavailable(error)
                return None
            return sys.breakpointhook(*args, **kwargs)

    def on_main_signal(self, _number: int, frame: types.FrameType | None) -> None:
        # Not through `hooks.run`: an exception of a hook is meant for the code that was interrupted.
        outermost, began = not self.in_signal, time.thread_time_ns()
        self.in_signal = True
        try:
            if hooks.signalled:
                with headroom:
                    for function in tuple(hooks.signalled):
                        function(frame)
        finally:
            if outermost:
                self.signalled_ns += time.thread_time_ns() - began
                self.signals_handled = self.signals_sent
                self.in_signal = False

    # -- RankServices

    def signal_main(self) -> None:
        """Have the hooks in `signalled` run on the main thread. Raises MeshError if user code took the signal."""
        if signal.getsignal(MAIN_SIGNAL) != self._handler:
            raise MeshError(f"code of this rank uses signal {int(MAIN_SIGNAL)}, which the debugger needs")
        ident = threading.main_thread().ident
        if ident is not None:
            self.signals_sent += 1
            signal.pthread_kill(ident, MAIN_SIGNAL)

    def interject(self, function: Callable[[Waited], None]) -> bool:
        """Run ``function`` on the main thread if it waits in a ``get()`` now."""
        return self.runtime.driver.interject(function)

    def current_call(self) -> EndpointCall | None:
        """Return the endpoint call that runs on the calling thread, or None."""
        context = current_call()
        return None if context is None else context.call

    def current_calls(self) -> list[EndpointCall]:
        """Return the endpoint calls that run on this rank now."""
        calls = [call for actor in self.actors() for call in (actor.call, *actor.concurrent.values())]
        return [call for call in calls if call is not None]

    def actors(self) -> list[ActorState]:
        """Return the actors that live here, that of the main thread first."""
        found = []
        main = self.host.main_mailbox
        for mailbox in sorted(self.host.mailboxes.values(), key=lambda mailbox: mailbox is not main):
            serial = mailbox.running
            calls = {task: execution.context.call for task, execution in mailbox.concurrent.running.items()}
            call = None if serial is None else serial.context.call
            instance, owes, cls = mailbox.executor.actor, mailbox.executor.owed(), mailbox.executor.cls
            loop, task, begun = mailbox.loop, mailbox.task, mailbox.calls
            state = ActorState(mailbox.name, mailbox.thread, call, loop, task, instance, calls, owes, cls, begun)
            found.append(state)
        return found

    def workload(self) -> list[Workload]:
        """Return the workload of the actors that live here: calls begun, and messages that wait. Control thread."""
        self.control.let_in()
        found = []
        for mailbox in tuple(self.host.mailboxes.values()):
            count, more = mailbox.waiting()
            found.append(Workload(mailbox.name, mailbox.calls, count, more, mailbox.callers.has_unseen()))
        return found

    def wait_of(self, waiter: object) -> Wait | None:
        """Return the call that a thread (its ident) or an asyncio task waits for; None: it waits for none."""
        return self.runtime.driver.waits.of(waiter)

    def waits_since(self, thread: int) -> float | None:
        """Return since when (monotonic) a thread is in a ``get()``; None: it is not."""
        return self.runtime.driver.waits.since(thread)

    def serve(self, operation: Served[Q, A], handler: Callable[[Q], A]) -> None:
        """Serve an operation."""
        self.operations[operation.name()] = server(operation, handler)

    def serve_later(self, operation: Served[Q, A], handler: Callable[[Q, Answers[A]], None]) -> None:
        """Serve an operation that is answered later."""
        self.control.deferred[operation.name()] = slow_server(operation, handler)

    def report(self, report: Report) -> None:
        """Send a report to the root's side of a plug-in."""
        self.control.send(Event(report.name(), body_of(report)))

    def keep_file(self, name: str, text: str, *, durable: bool = False) -> Path:
        """Write a file that a user reads afterwards, see `meshrt.hooks.services.RankServices`."""
        path = Path(self.run_directory) / name
        if self.elsewhere:
            for part in FilePart.parts(name, text.encode(errors="surrogateescape")):
                self.report(part)
        else:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomic(path, text, durable=durable)
        return path

    def ask(self, operation: Operation[A], timeout: float) -> A:
        """Ask the root and wait. Raises TimeoutError, or MeshError if the root refuses."""
        answers: queue.SimpleQueue[tuple[Body | None, Exception | None]] = queue.SimpleQueue()
        number = self.control.requests.ask(
            operation.name(), body_of(operation), lambda answer, error: answers.put((answer, error))
        )
        try:
            answer, error = answers.get(timeout=timeout)
        except queue.Empty:
            self.control.requests.forget(number)
            raise TimeoutError(f"the root did not answer {operation.name()!r} within {timeout:g} s") from None
        if error is not None:
            raise error
        return operation.read_answer(answer or {})

    def held(self) -> bool:
        """Whether a user holds any rank of the program."""
        return self.runtime.driver.clock.held

    def set_held(self, held: bool) -> None:
        """Report that the debugger has stopped, or resumed, a thread of this rank."""
        self.report(Held(held))

    def typed(self, begins: bool) -> None:
        """Begin, or end, a line that a user has typed, on the calling thread."""
        self.runtime.driver.clock.typed(begins)

    def _keep_line(self, text: str) -> None:
        """Write a text to the log file of this rank alone."""
        for raw in self._outputs[1:]:
            with contextlib.suppress(OSError):
                raw.keep(text)

    def flush_output(self) -> None:
        """Flush the output of user code."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for raw in self._outputs:
            with contextlib.suppress(OSError):
                raw.push()

    # -- Tree (for the calls that this rank makes)

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back when another rank ends."""

        def answered(answer: Ended | None, error: Exception | None) -> None:
            callback(answer.fate if answer is not None else Fate("link", hint=str(error or "")))
            self.runtime.driver.lost.fail_pending()

        self.ask_later(Watch(mesh_id, rank), answered)

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[HostAddress | None], None]) -> None:
        """Call back when another rank listens."""
        self.ask_later(WhenBorn(mesh_id, rank), lambda born, _error: callback(None if born is None else born.host))

    def actor_spawned(self, mesh_id: str, actor: str, view: Shape, *, owned: bool = True) -> None:
        """Tell that an actor is about to be built on a view of a mesh."""
        call = current_call()
        spawner = "" if call is None else call.instance.name
        self.report(ActorSpawned(mesh_id, actor, view.to_wire(), spawner if owned else None))

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        """Allow ranks to be started again."""
        self.report(AllowRestarts(mesh_id, ranks, actor, count))

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        """Call back when another rank was started again."""

        def answered(answer: Restarted | None, _error: Exception | None) -> None:
            if answer is not None:
                callback(answer.incarnation, answer.fate)

        self.ask_later(WhenRestarted(mesh_id, rank, actor), answered)

    def switch(self, on: bool) -> None:
        """Have the control thread poll the links, or no longer."""
        self.control.switch(on)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call ``function`` on the control thread after ``seconds``."""
        self.control.call_later(seconds, function)

    def ask_later(self, operation: Operation[A], answered: Callable[[A | None, Exception | None], object]) -> None:
        """Ask the root without waiting."""
        self.control.requests.ask(operation.name(), body_of(operation), answers_of(operation, answered))

    def relay(self, address: RankAddress, why: str, opened: Opened) -> None:
        """Ask the root for a way to a rank."""

        def answered(answer: Relayed | None, error: Exception | None) -> None:
            opened(ConnectionError(str(error)) if answer is None else Way(answer.port, answer.name))

        self.ask_later(RelayTo(address.mesh_id, address.rank, why), answered)

    def unhandled(self, report: Unhandled) -> None:
        """Report an error that no caller waits for."""
        self.report(report)

    def _on_error(self, error: BaseException) -> None:
        """Note that code of this rank was given the error: what it says has failed is known."""
        for mesh_id, rank, pid in lost_ranks(error):
            self.report(Told(mesh_id, rank, pid))
        for place, failure in failed_inits(error):
            self.report(Told(place.mesh_id, place.rank, place.pid, failure))


def _exit_text(error: BaseException) -> str:
    return f"sys.exit({text_of(error)[:200]})" if issubclass(type(error), SystemExit) else type_name(error)


def rank_main(birth: Birth, plumbing: Plumbing) -> None:
    """Be a rank; returns when it is to exit."""
    RankProcess(birth, plumbing).run()
