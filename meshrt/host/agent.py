"""The agent's loop: one thread, one selector.

It lives as long as the root: when the root's end of the control link closes, or the root's pidfd reports its end, the
agent kills every rank and every descendant of a rank, and ends. As subreaper it inherits the orphans of its ranks, so
no process escapes by starting a session of its own.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec.structs import replace

from meshrt.errors import MeshError, ProtocolError, UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import body_of
from meshrt.host import osutil
from meshrt.host.births import Program, checked
from meshrt.host.child import Birth, Child, Plumbing
from meshrt.host.code.relay import Kept as KeptCode
from meshrt.host.code.texts import serve_code
from meshrt.host.dumps import Dumps
from meshrt.host.elsewhere import Doors, OwnDirectories, error_file, remove_sockets, search_path
from meshrt.host.family import Families
from meshrt.host.fates import end_of, fate_of, reap
from meshrt.host.gather import Gathers
from meshrt.host.logspace import LogSpace
from meshrt.host.meeting import Meeting
from meshrt.host.memory import Measures
from meshrt.host.oom import OutOfMemory
from meshrt.host.output import Stream
from meshrt.host.pulse import STACK_SIGNAL, Pulse
from meshrt.host.rootlink import RootGoneError, RootLink
from meshrt.host.sending import OutputQueue
from meshrt.host.starting import Starter
from meshrt.host.strays import Strays
from meshrt.host.waking import Waking
from meshrt.store.machine import be_machine, machine_of
from meshrt.store.server import StoreServer
from meshrt.transport.dropping import DROPPABLE
from meshrt.transport.link import Link
from meshrt.transport.liveness import LOOK_SECONDS
from meshrt.transport.reserve import reserve
from meshrt.transport.rootpipe import open_root_pipe, signal_at_end
from meshrt.transport.timers import Timers
from meshrt.wire import tree
from meshrt.wire.addresses import HostAddress
from meshrt.wire.certificate import Certificate
from meshrt.wire.code import Code
from meshrt.wire.control import Address, control_frame, relayed_frame
from meshrt.wire.errors import refusal
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import Secret
from meshrt.wire.operations import Cut, FilePart

__all__ = ["Agent"]

#: Seconds between the interrupt of a rank that does not end and its SIGKILL.
_KILL_AFTER = 0.5
#: Seconds for the end of everything, when the root is gone.
_KILL_EVERYTHING = 2.0
#: Seconds that the end of a rank's output may take after its death (a grandchild may hold the pipe).
_OUTPUT_GRACE = 0.05
#: Seconds that a mesh which is stopped waits until the root has taken its output, on another machine.
_OUTPUT_SENT = 5.0
#: Seconds until strays are looked for again, if that could not be done.
_SWEEP_AGAIN = 0.1
_PING = control_frame(tree.Ping())
_CUT = control_frame(tree.Request(0, Cut.name()))


class _Goodbye(Exception):
    """The root cleans up by itself."""


class Agent:
    """The host agent.

    Args:
        link: The link to the root.
        main: What a rank runs, given its `Birth` and plumbing (handed in, so that this floor knows nothing of actors).
    """

    def __init__(self, link: Link, main: Callable[..., None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._root = RootLink(link, self._selector, self._from_root, self._unmute)
        self._pid = os.getpid()
        self._children: dict[Address, Child] = {}
        self._starter = Starter(self._selector, self._children, main, self._adopt, self._not_started, self._warn)
        self._strays = Strays()
        #: A process has ended since the strays were checked.
        self._unswept = False
        #: They could not be checked, which was reported to the user.
        self._sweep_failed = False
        #: Meshes that are being stopped, and the families of their ranks (None: what is of no family).
        self._stopping: dict[str, set[int | None]] = {}
        self._pulse = Pulse(self._ping, self._on_pulse)
        self._gathers = Gathers(self._children, self._send_rank, self._root.tell, self._later, Dumps(self._pulse))
        self._measures = Measures(self._children, self._root.tell, self._later, lambda: self._store)
        #: Ranks that are not read from until the root has read what they have sent before.
        self._muted: set[Child] = set()
        #: Where processes that something else has started become ranks.
        self._meetings: list[Meeting] = []
        #: Requests to start ranks of which the last message is still to come, by mesh.
        self._incomplete: dict[str, list[tree.Spawn]] = {}
        self._out_of_memory = OutOfMemory()
        self._waking = Waking()
        self._timers = Timers()
        self._program: Program | None = None
        #: Shared memory of its ranks and of the root, once it knows where it may listen.
        self._store: StoreServer | None = None
        #: The directories that this agent has made; None: it uses those of the root, whose machine this is.
        self._own: OwnDirectories | None = None
        self._doors: Doors | None = None
        #: Code that ranks ask for, on another machine than the root's.
        self._code: KeptCode | None = None
        #: Output that the root is to write; not used on its machine.
        self._output = OutputQueue(self._root.tell, lambda: self._sweep_next(0))
        self._root_pidfd = -1
        self._root_pipe = -1
        #: The root has ended without a goodbye, so this process cleans up for it.
        self.bereaved = False
        self._selector.register(self._strays.fileno(), selectors.EVENT_READ, self._sweep_next)

    def run(self, frames: Iterable[Frame] = ()) -> None:
        """Serve until the root is gone; then kill everything and exit. ``frames``: what has come already."""
        self._tick()
        try:
            for frame in frames:
                self._from_root(frame)
            while True:
                self._waking.begin()
                ready = self._selector.select(0 if self._starter.waits else self._timers.wait())
                self._waking.woken()
                for key, events in ready:
                    key.data(events)
                self._starter.go_on()
                for action in self._timers.due():
                    action()
                if self._unswept:
                    self._sweep()
        except _Goodbye:
            pass
        except RootGoneError:
            self.bereaved = True
        finally:
            self._kill_everything()

    # -- root

    def _from_root(self, frame: Frame) -> None:
        if frame.header is not None:
            self._to_rank((frame.header[0], frame.header[1]), frame)
            return
        match tree.FROM_ROOT.decode(frame.payload):
            case tree.Hello() as hello:
                self._on_hello(hello)
            case tree.Certified(certificate=certificate):
                self._be_certified(Certificate(*certificate))
            case tree.Bye():
                raise _Goodbye
            case tree.Spawn() as spawn:
                self._on_spawn(spawn)
            case tree.Stop() as stop:
                self._on_stop(stop)
            case tree.Ping(number=number, at=at):
                self._root.tell(tree.Pong(number, at, time.monotonic_ns(), time.time_ns() / 1e9))
            case tree.Gather() as question:
                self._starter.hurry({(mesh, rank) for mesh, ranks in question.targets.items() for rank in ranks})
                self._gathers.begin(question)
            case tree.LeaveGather(id=number):
                self._gathers.leave(number)
            case tree.Measure() as question:
                self._measures.begin(question)
            case tree.Dial() as dial:
                if self._doors is not None:
                    self._doors.dial(dial)
            case Code() as code:
                if self._code is not None:
                    self._code.answered(code)
            case tree.Kept(cost=cost):
                self._output.kept(cost)
            case tree.Located() | tree.StoreWay() as answer:
                if self._store is not None:
                    self._store.told_where(answer)
            case unknown:
                assert_never(unknown)

    def _on_hello(self, hello: tree.Hello) -> None:
        directory, run_directory = os.fsdecode(hello.directory), os.fsdecode(hello.run_directory)
        kept_at = run_directory if hello.machine else ""
        if hello.machine:
            be_machine(hello.machine)
            self._own = OwnDirectories(hello.machine, self._warn)
            directory, run_directory = self._own.runtime, self._own.run
            self._starter.output_queue = self._output
        address = HostAddress(machine_of(self._pid), self._pid, os.fsencode(directory))
        secret = Secret(hello.secret)
        self._program = Program(
            hello.run_id, address, run_directory, kept_at, secret, hello.host, list(hello.argv), None
        )
        self._strays.families = Families(hello.families)
        self._starter.log_space = LogSpace(hello.logs_limit, self._warn)
        sys.path[:] = search_path(hello.sys_path, sys.path)
        sys.argv[:] = hello.argv
        if self._own is None:
            try:
                self._root_pidfd = os.pidfd_open(hello.root_pid)
            except ProcessLookupError:
                raise RootGoneError from None  # it has ended before this process could read that
            self._selector.register(self._root_pidfd, selectors.EVENT_READ, self._on_root_exit)
        try:
            self._root_pipe = open_root_pipe(directory)
            # This process may be stopped (SIGSTOP), and nothing else kills what ranks have detached.
            if self._own is None and signal_at_end(self._root_pipe, signal.SIGCONT, self._pid) is None:
                raise RootGoneError
            self._store = StoreServer(self._selector, directory, run_directory, secret, hello.store_limit, self._later)
        except FileNotFoundError:
            if os.path.isdir(directory):
                raise
            raise RootGoneError from None  # it is about to end, and has removed its directory
        if hello.certificate is not None:
            self._be_certified(Certificate(*hello.certificate))
        if self._own is not None:
            self._later(LOOK_SECONDS, self._look_at_root)
            self._code = serve_code(
                self._selector, directory, secret, hello.host, self._root.tell, self._warn, self._later
            )
        self._root.tell(tree.Serves())

    def _be_certified(self, certificate: Certificate) -> None:
        """The program has several machines: open the port of this one, for its ranks. A no-op the second time."""
        program = self._described
        store = self._store
        if program.certificate is None and store is not None:
            store.be_certified(certificate, self._root.tell)
            self._doors = Doors(self._selector, self._children, self._pid, program.secret, store.admit, self._later)
            address = program.address._replace(ports=self._doors.ports)
            self._program = program = replace(program, address=address, certificate=certificate)
            for child in self._children.values():
                if child.pid:
                    self._send_rank(child, control_frame(tree.Certified(certificate)))
        peer = self._root.peer if self._own is not None else None
        self._root.tell(tree.Joined(program.address, time.monotonic_ns(), time.time_ns() / 1e9, peer))

    @property
    def _described(self) -> Program:
        if self._program is None:
            raise ProtocolError("a control message that is not 'hello'; expected that first")
        return self._program

    def _look_at_root(self) -> None:
        if self._root.is_silent():
            raise RootGoneError  # the root takes this machine for lost in a moment, and may start its ranks elsewhere
        self._later(LOOK_SECONDS, self._look_at_root)

    def _on_root_exit(self, _events: int) -> None:
        raise RootGoneError

    # -- starting

    def _on_spawn(self, spawn: tree.Spawn) -> None:
        program = self._described
        incomplete = self._incomplete.setdefault(spawn.mesh, [])
        incomplete.append(spawn)
        if spawn.more:
            return
        del self._incomplete[spawn.mesh]
        if self._code is not None:
            self._code.compare_again()
        asked = program.births(incomplete, self._strays.families.new, self._root_pipe)
        births = checked(asked, None if self._own is None else len(self._children), self._not_started)
        if spawn.meeting:
            self._meet(spawn.meeting, list(births), program.run_directory)
        elif spawn.preload:
            self._starter.start_preloaded(
                spawn.mesh, births, program.run_directory, list(spawn.preload), dict(spawn.common_env)
            )
        else:
            self._starter.start(births, program.run_directory)

    def _meet(self, name: str, births: list[Birth], log_directory: str) -> None:
        """Have processes join, at the socket of this name."""

        def prepare(birth: Birth) -> tuple[Child, Plumbing]:
            return self._starter.prepare(birth, log_directory, joined=True)

        try:
            self._meetings.append(Meeting(self._selector, name, births, prepare, self._adopt, self._later))
        except (OSError, UsageError) as error:
            for birth in births:
                self._not_started(birth, f"the socket for joining could not be created: {error}")

    def _adopt(self, child: Child, pid: int) -> None:
        child.pid = pid
        address = child.address
        try:
            child.pidfd = os.pidfd_open(pid)
            self._watch(child)
        except OSError as error:
            if not child.joined:
                os.kill(pid, signal.SIGKILL)
                reap(pid)
            self._children.pop(address, None)
            self._unwatch(child)
            child.close()
            self._not_started(child.birth, f"it cannot be watched: {error.strerror} (see ulimit -n, and memory)")
            return
        self._children[address] = child
        certificate = self._described.certificate
        if certificate is not None and child.birth.certificate is None:  # a zygote was forked before it was known
            self._send_rank(child, control_frame(tree.Certified(certificate)))
        self._root.tell(tree.Started(*address, pid))
        if address[0] in self._stopping:
            self._stopping[address[0]].add(child.birth.family)
            self._send_rank(child, control_frame(tree.End(drain=True, why="")))

    def _watch(self, child: Child) -> None:
        register = self._selector.register
        register(child.pidfd, selectors.EVENT_READ, lambda _events: self._on_exit(child))
        register(child.link.sock, selectors.EVENT_READ, lambda events: self._from_rank(child, events))
        for stream in child.streams:
            register(stream.fd, selectors.EVENT_READ, lambda _events, s=stream: self._on_output(child, s))

    def _unwatch(self, child: Child) -> None:
        """Undo as much of `_watch` as was done, and close the pidfd."""
        for watched in (child.pidfd, child.link.fileno(), *(stream.fd for stream in child.streams)):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(watched)
        if child.pidfd >= 0:
            os.close(child.pidfd)

    def _not_started(self, birth: Birth, reason: str) -> None:
        kind = "stopped" if birth.mesh_id in self._stopping else "unborn"
        fate = Fate(kind, host=birth.host, hint=reason)
        self._gathers.forget((birth.mesh_id, birth.rank))
        self._root.tell(tree.Gone(birth.mesh_id, birth.rank, fate))
        self._unswept = True

    # -- ranks

    def _to_rank(self, address: Address, frame: Frame) -> None:
        self._starter.hurry((address,))
        child = self._children.get(address)
        if child is None:
            return
        if child.full:  # a message without an answer passes: it changes a state, or is sent once
            message = tree.TO_RANK.decode(frame.payload)
            if isinstance(message, tree.Request) and message.id:
                error = MeshError(
                    f"{message.op} was not sent to rank {child.birth.rank}: the rank does not read messages"
                )
                self._root.tell(refusal(message.id, error), address)
                return
        self._send_rank(child, relayed_frame(frame.payload))

    def _send_rank(self, child: Child, data: bytes) -> None:
        if not child.link.send([data]):
            self._want(child, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _want(self, child: Child, events: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.modify(child.link.sock, events, lambda events: self._from_rank(child, events))

    def _from_rank(self, child: Child, events: int) -> None:
        if child.gone:
            return
        if events & selectors.EVENT_WRITE and child.link.flush():
            self._want(child, selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            try:
                frames = child.link.read()
            except ProtocolError as error:
                self._distrust(child, error)
                frames = None
            if frames is None or not self._pass_on(child, frames):
                # Closed by user code, or the rank is about to end: only its pidfd tells.
                child.closed = self._waking.span()
                self._selector.unregister(child.link.sock)
            elif self._root.full:
                self._muted.add(child)
                self._selector.unregister(child.link.sock)

    def _unmute(self) -> None:
        muted, self._muted = self._muted, set()
        for child in muted:
            if not child.gone:
                # Its answers to pings have been waiting as well.
                self._pulse.forget(child)
                events = selectors.EVENT_READ | selectors.EVENT_WRITE
                self._selector.register(child.link.sock, events, lambda events, c=child: self._from_rank(c, events))

    def _pass_on(self, child: Child, frames: list[Frame]) -> bool:
        """Handle a message of a rank. Returns whether it was valid; if not, the rank is ended."""
        for frame in frames:
            try:
                self._take(child, tree.FROM_RANK.decode(frame.payload), frame.payload)
            except Exception as error:
                # Any error: a bad message affects its sender only.
                self._distrust(child, error)
                return False
        return True

    def _take(self, child: Child, message: tree.FromRank, payload: memoryview | bytes) -> None:
        match message:
            case tree.Pong():
                self._pulse.answered(child)
            case tree.Hint(text=text):
                child.hint = text
            case tree.Leaving() as leaving:
                child.leaving = leaving
            case tree.DroppedEvents(events=events):
                self._root.note_dropped(child.address, _counts(events))
            case _:
                if not self._gathers.takes(child, message):
                    self._root.pass_on(message, payload, child.address)

    def _distrust(self, child: Child, error: Exception) -> None:
        """User code wrote into the runtime's descriptors: this rank cannot be trusted any more."""
        child.hint = f"its control link was broken by user code: {type(error).__name__}: {error}"
        if not child.joined:  # of one that has joined, nothing is read any more
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _on_output(self, child: Child, stream: Stream) -> None:
        if child.gone:
            return
        lines = stream.read()
        if lines is None:
            self._selector.unregister(stream.fd)
            child.streams.remove(stream)
            lines = stream.end()
        self._root.output(child.address, stream.err, lines)

    def _on_exit(self, child: Child) -> None:
        """The process has ended: read its last output, reap it, and report its end."""
        child.gone = True
        self._selector.unregister(child.pidfd)
        self._muted.discard(child)
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.link.sock)
        self._pass_on(child, child.link.drain())
        self._last_output(child)
        status = osutil.status_of(child.pidfd, child.pid) if child.joined else reap(child.pid)
        os.close(child.pidfd)
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            child.hint = child.hint or self._out_of_memory.evidence()
        span = end_of(child, self._waking.span())
        fate = fate_of(child, status, span, stopping=child.birth.mesh_id in self._stopping)
        if self._own is not None:
            for part in error_file(child.birth):
                self._root.tell(tree.Event(FilePart.name(), body_of(part)), child.address)
        self._bury(child, fate)

    def _let_go(self, child: Child) -> None:
        """The mesh is stopped, and the process of this rank goes on without it."""
        child.gone = True
        self._muted.discard(child)
        self._unwatch(child)
        self._bury(child, Fate("stopped", host=child.birth.host, pid=child.pid))

    def _bury(self, child: Child, fate: Fate) -> None:
        """Report the end of a rank, and free what it had."""
        self._pulse.forget(child)
        del self._children[child.address]
        self._gathers.forget(child.address)
        child.close()
        self._root.tell(tree.Gone(*child.address, fate))
        self._unswept = True

    def _last_output(self, child: Child) -> None:
        deadline = time.monotonic() + _OUTPUT_GRACE
        for stream in tuple(child.streams):
            with contextlib.suppress(KeyError):
                self._selector.unregister(stream.fd)
            while time.monotonic() < deadline:
                lines = stream.read()
                if lines is None or not stream.took:
                    break
                self._root.output(child.address, stream.err, lines)
            self._root.output(child.address, stream.err, stream.end())
        child.streams.clear()

    # -- strays

    def _sweep_next(self, _events: int) -> None:
        self._unswept = True

    def _sweep(self) -> None:
        """Kill what ended ranks have left, and report the meshes that have ended completely."""
        self._unswept = False
        try:
            ending = self._strays.sweep(self._children.values(), self._starter.zygotes.keys())
        except OSError as error:
            if not self._sweep_failed:
                self._warn(f"processes that ranks have left behind cannot be listed: {error.strerror} (see ulimit -n)")
            self._sweep_failed = True
            self._later(_SWEEP_AGAIN, lambda: self._sweep_next(0))
            return
        self._sweep_failed = False
        for mesh, families in tuple(self._stopping.items()):
            left = families & ending or self._of(mesh) or self._starter.is_to_start(mesh) or self._output.waits(mesh)
            if not left:
                del self._stopping[mesh]
                self._root.tell(tree.MeshStopped(mesh))

    # -- silent ranks

    def _tick(self) -> None:
        self._out_of_memory.look()
        if self._store is not None:
            self._store.tick()
        # An interpreter that ends answers no more, and may take its time.
        self._pulse.tick([child for child in self._children.values() if child.leaving is None])
        self._later(self._pulse.interval(len(self._children)), self._tick)

    def _ping(self, child: Child) -> None:
        self._send_rank(child, _PING)

    def _on_pulse(self, child: Child, state: str, stack: str) -> None:
        self._root.tell_latest(tree.Pulse(*child.address, state, stack), child.address)

    # -- stopping

    def _on_stop(self, stop: tree.Stop) -> None:
        mesh, grace = stop.mesh, stop.grace
        self._stopping.setdefault(mesh, {None}).update(child.birth.family for child in self._of(mesh))
        request = control_frame(tree.End(stop.drain, stop.why))
        for child in self._of(mesh):
            if child.pid:
                self._send_rank(child, request)
            if child.joined:
                self._let_go(child)
        for meeting in self._meetings:
            if meeting.mesh == mesh:
                meeting.close()
        if stop.drain:
            self._later(grace, lambda: self._cut(mesh))
        self._later(grace + _KILL_AFTER, lambda: self._kill(mesh))
        self._later(grace + _KILL_AFTER + _OUTPUT_SENT, lambda: self._output.give_up(mesh))
        if grace <= 0:
            self._starter.give_up(mesh)
        self._unswept = True

    def _of(self, mesh: str) -> list[Child]:
        return [child for (owner, _), child in self._children.items() if owner == mesh]

    def _cut(self, mesh: str) -> None:
        """The grace is over: each rank reports its running calls, and interrupts them."""
        self._starter.give_up(mesh)
        for child in self._of(mesh):
            if child.pid:
                self._send_rank(child, _CUT)

    def _kill(self, mesh: str) -> None:
        self._starter.give_up(mesh)
        for child in self._of(mesh):
            if child.pidfd >= 0:
                child.killed = True
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _kill_everything(self) -> None:
        """Kill everything: ranks, their descendants, and strays with the mark of this program."""
        for meeting in self._meetings:
            meeting.close()
        self._strays.kill_all(_KILL_EVERYTHING)
        if self._own is not None:
            self._own.close()
        elif self.bereaved:
            reserve.release()  # directories are opened to be removed
            remove_sockets(None if self._program is None else os.fsdecode(self._program.address.directory))

    # -- timers and the rest

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.add(seconds, action)

    def _warn(self, text: str) -> None:
        self._root.tell(tree.Warn(text))


def _counts(sent: dict[str, int]) -> dict[str, int]:
    """Return the events that a rank reports as left out. Raises ProtocolError."""
    if not all(event in DROPPABLE and count > 0 for event, count in sent.items()):
        raise ProtocolError(f"counts of events that were left out; expected some of {', '.join(DROPPABLE)}")
    return sent


def serve(link: Link, main: Callable[..., None], leftover: bytes = b"", *, tells_of_end: bool = False) -> None:
    """Be the agent with this link to the root, and what was read of it already; never returns.

    Args:
        tells_of_end: If the root ends without a goodbye, say so on standard error, and exit with 1.
    """
    osutil.set_name("meshrt-agent")
    osutil.set_subreaper()
    osutil.raise_file_limit()
    reserve.fill()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # The root decides; a scheduler that signals the whole job must not end the agent before the root.
        signal.signal(number, signal.SIG_IGN)
    # Inherited by the ranks, until faulthandler handles it: a rank that is slow to start must survive the signal.
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    try:
        agent = Agent(link, main)
        agent.run(link.feed(leftover) if leftover else ())
    except Exception:
        traceback.print_exc()
        os._exit(1)
    if tells_of_end and agent.bereaved:
        why = f" ({link.error.strerror})" if link.error is not None else ""
        with contextlib.suppress(OSError):
            print(
                f"meshrt: the agent of host {os.uname().nodename} ends: the script on host 0 has died, "
                f"or its machine does not answer{why}",
                file=sys.stderr,
                flush=True,
            )
        os._exit(1)
    # Nothing is left to finalize, and the root waits for this process.
    os._exit(0)
