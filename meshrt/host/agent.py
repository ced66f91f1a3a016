"""The agent's loop: one thread, one selector.

It lives as long as the root: when the root's end of the control link closes, or the root's pidfd says that it is gone,
every rank and every descendant of a rank is killed, and the agent ends. As subreaper it inherits the orphans of its
ranks, so nothing escapes by starting a session of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from meshrt.errors import ProtocolError
from meshrt.host import osutil
from meshrt.host.child import Birth, Child, Plumbing, become_rank
from meshrt.host.output import Stream
from meshrt.host.pulse import STACK_SIGNAL, Pulse
from meshrt.host.strays import Strays
from meshrt.host.zygote import Zygote
from meshrt.transport.fate import Fate
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame, control_decoder
from meshrt.wire.messages import Address, control_frame, unpack_control

__all__ = ["Agent"]

#: Bytes of output that may wait for a root that does not read; beyond, lines go to the files only.
_OUTPUT_LIMIT = 4 << 20
#: Seconds between the interrupt of a rank that does not end and its SIGKILL.
_KILL_AFTER = 0.5
#: Seconds for the end of everything, when the root is gone.
_KILL_EVERYTHING = 2.0
#: Seconds that the end of a rank's output may take after its death (a grandchild may hold the pipe).
_OUTPUT_GRACE = 0.05
_OUTPUT_BATCH = 512 << 10
_PING = control_frame({"t": "ping"})
#: Characters of the last lines that an error carries.
_TAIL_MAX = 64 << 10


class Agent:
    """The host agent.

    Args:
        control: The link to the root.
        main: What a rank runs, given its `Birth` and plumbing (handed in, so that this floor knows nothing of actors).
    """

    def __init__(self, control: socket.socket, main: Callable[..., None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._root = Link(control, control_decoder())
        self._main = main
        self._pid = os.getpid()
        self._children: dict[Address, Child] = {}
        #: Processes that preload modules, by pid.
        self._zygotes: dict[int, Zygote] = {}
        self._strays = Strays()
        self._sweeping = False
        self._stopping: set[str] = set()
        self._pulse = Pulse(self._ping, self._on_pulse)
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "hello": self._on_hello,
            "bye": self._on_bye,
            "spawn": self._on_spawn,
            "stop": self._on_stop,
            "kill": self._on_kill,
            "ping": lambda _message: self._tell_root({"t": "pong"}),
        }
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._dropped = 0
        self._facts: dict[str, Any] = {}
        self._root_pidfd = -1
        self._root_exit = select.poll()
        #: Did the root say goodbye? Then it cleans up behind itself.
        self._root_lives = False
        self._selector.register(control, selectors.EVENT_READ, self._from_root)
        self._selector.register(self._strays.fileno(), selectors.EVENT_READ, self._reap_strays)

    def run(self) -> None:
        """Serve until the root is gone; then kill everything and exit."""
        self._tick()
        try:
            while True:
                for key, events in self._selector.select(self._next_timer()):
                    key.data(events)
                self._run_timers()
        except _RootGoneError:
            pass
        finally:
            self._kill_everything()

    # -- root

    def _from_root(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush_root()
        if not events & selectors.EVENT_READ:
            return
        frames = self._root.read()
        if frames is None:
            raise _RootGoneError
        for frame in frames:
            if frame.header is not None:
                self._to_rank((frame.header[0], frame.header[1]), frame)
                continue
            message = unpack_control(frame.payload)
            self._handlers[message["t"]](message)

    def _tell_root(self, message: dict[str, Any]) -> None:
        self._write_root(control_frame(message))

    def _write_root(self, data: bytes) -> None:
        if not self._root.send([data]):
            self._selector.modify(self._root.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self._from_root)

    def _flush_root(self) -> None:
        if self._root.flush():
            self._selector.modify(self._root.sock, selectors.EVENT_READ, self._from_root)
            if self._dropped:
                count, self._dropped = self._dropped, 0
                self._tell_root(
                    {"t": "warning", "text": f"{count} lines of output were too fast; they are in the files"}
                )

    def _on_hello(self, message: dict[str, Any]) -> None:
        self._facts = message
        sys.path[:] = message["sys_path"]
        sys.argv[:] = message["argv"]
        self._root_pidfd = os.pidfd_open(message["root_pid"])
        self._selector.register(self._root_pidfd, selectors.EVENT_READ, self._on_root_exit)
        self._root_exit.register(self._root_pidfd, select.POLLIN)

    def _on_bye(self, _message: dict[str, Any]) -> None:
        self._root_lives = True
        raise _RootGoneError

    def _on_root_exit(self, _events: int) -> None:
        raise _RootGoneError

    # -- starting

    def _on_spawn(self, message: dict[str, Any]) -> None:
        births = (self._birth(message, rank) for rank in message["ranks"])
        if message["preload"]:
            prepared = [both for birth in births if (both := self._prepare(birth)) is not None]
            self._fork_preloaded(message, prepared)
            return
        for birth in births:
            if self._root_exit.poll(0):  # many ranks take a while to fork, which nobody needs then
                raise _RootGoneError
            both = self._prepare(birth)
            if both is not None:
                self._fork(*both)

    def _prepare(self, birth: Birth) -> tuple[Child, Plumbing] | None:
        log_path = Path(self._facts["run_directory"]) / f"{birth.mesh_name}-{birth.mesh_id}.{birth.rank}.log"
        try:
            return Child.prepare(birth, log_path, self._warn)
        except OSError as error:
            self._not_started(birth, f"no socket or pipe for it: {error.strerror} (see ulimit -n)")
            return None

    def _fork(self, child: Child, plumbing: Plumbing) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            plumbing.close()
            self._discard(child)
            self._not_started(child.birth, f"fork failed: {error.strerror} (see ulimit -u, and memory)")
            return
        if pid == 0:
            become_rank(child.birth, plumbing, self._main)
        plumbing.close()
        self._adopt(child, pid)

    def _birth(self, message: dict[str, Any], rank: int) -> Birth:
        env = {**message["common_env"], **message["env"].get(str(rank), {})}
        facts = self._facts
        return Birth(
            message["mesh"],
            message["name"],
            rank,
            message["labels"],
            message["sizes"],
            env,
            facts["run_id"],
            facts["directory"],
            facts["secret"],
            facts["host"],
            facts["argv"],
            self._pid,
        )

    def _fork_preloaded(self, message: dict[str, Any], prepared: list[Any]) -> None:
        for child, _ in prepared:
            self._children[self._address(child)] = child
        try:
            zygote = Zygote(message["mesh"], prepared, message["preload"], message["common_env"], self._main)
        except OSError as error:
            for child, plumbing in prepared:
                plumbing.close()
                self._discard(child)
                self._not_started(child.birth, f"no process could be started to preload: {error.strerror}")
            return
        for _, plumbing in prepared:
            plumbing.close()
        self._zygotes[zygote.pid] = zygote
        self._selector.register(zygote.pipe, selectors.EVENT_READ, lambda _events: self._from_zygote(zygote))
        self._selector.register(zygote.pidfd, selectors.EVENT_READ, lambda _events: self._on_zygote_exit(zygote))

    def _from_zygote(self, zygote: Zygote) -> None:
        if zygote.pid in self._zygotes:
            for rank, pid in zygote.reports():
                self._adopt(self._children[zygote.mesh_id, rank], pid)

    def _on_zygote_exit(self, zygote: Zygote) -> None:
        # Its end, not that of the pipe: what a preloaded module started may hold the pipe for ever.
        self._from_zygote(zygote)
        del self._zygotes[zygote.pid]
        self._selector.unregister(zygote.pipe)
        self._selector.unregister(zygote.pidfd)
        reason = zygote.close()
        for child in zygote.children:
            if not child.pid:
                self._discard(child)
                self._not_started(child.birth, reason)

    @staticmethod
    def _address(child: Child) -> Address:
        return child.birth.mesh_id, child.birth.rank

    def _adopt(self, child: Child, pid: int) -> None:
        child.pid = pid
        address = self._address(child)
        try:
            child.pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            self._reap(pid)
            self._discard(child)
            self._not_started(child.birth, f"it cannot be watched: {error.strerror} (see ulimit -n)")
            return
        self._children[address] = child
        register = self._selector.register
        register(child.pidfd, selectors.EVENT_READ, lambda _events: self._on_exit(child))
        register(child.link.sock, selectors.EVENT_READ, lambda events: self._from_rank(child, events))
        for stream in child.streams:
            register(stream.fd, selectors.EVENT_READ, lambda _events, s=stream: self._on_output(child, s))
        self._tell_root({"t": "started", "mesh": address[0], "rank": address[1], "pid": pid})
        if address[0] in self._stopping:
            self._send_rank(child, control_frame({"t": "stop", "drain": True}))

    def _not_started(self, birth: Birth, reason: str) -> None:
        fate = Fate("unborn", host=birth.host, hint=reason)
        self._tell_root({"t": "gone", "mesh": birth.mesh_id, "rank": birth.rank, "fate": fate.to_wire()})
        self._check_stopped(birth.mesh_id)

    def _discard(self, child: Child) -> None:
        self._children.pop(self._address(child), None)
        child.link.close()
        for stream in child.streams:
            stream.end()
        os.close(child.fault_file)
        with contextlib.suppress(OSError):
            os.unlink(child.path)

    # -- ranks

    def _to_rank(self, address: Address, frame: Frame) -> None:
        child = self._children.get(address)
        if child is not None and child.pid:
            self._send_rank(child, control_frame(unpack_control(frame.payload)))

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
                if frames is not None:
                    self._pass_on(child, frames)
            except ProtocolError as error:
                # User code wrote into the runtime's descriptors: this rank cannot be trusted any more.
                child.hint = f"its control link was broken by user code: {error}"
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                frames = None
            if frames is None:
                # Closed by user code, or the rank is about to end: only its pidfd tells.
                self._selector.unregister(child.link.sock)

    def _pass_on(self, child: Child, frames: list[Frame]) -> None:
        for frame in frames:
            message = unpack_control(frame.payload)
            if message["t"] == "pong":
                self._pulse.answered(child)
            else:
                self._write_root(control_frame(message, self._address(child)))

    def _on_output(self, child: Child, stream: Stream) -> None:
        if child.gone:
            return
        lines = stream.read()
        if lines is None:
            self._selector.unregister(stream.fd)
            child.streams.remove(stream)
            lines = stream.end()
        self._forward(child, stream.err, lines)

    def _forward(self, child: Child, err: bool, lines: list[tuple[str, str]]) -> None:
        if not lines:
            return
        if self._root.backlog_bytes > _OUTPUT_LIMIT:
            self._dropped += len(lines)
            return
        batch: list[tuple[str, str]] = []
        size = 0
        for line in lines:
            batch.append(line)
            size += 4 * len(line[1])  # the most that UTF-8 makes of it
            if size > _OUTPUT_BATCH:
                self._send_output(child, err, batch)
                batch, size = [], 0
        if batch:
            self._send_output(child, err, batch)

    def _send_output(self, child: Child, err: bool, lines: list[tuple[str, str]]) -> None:
        mesh, rank = self._address(child)
        self._tell_root({"t": "output", "mesh": mesh, "rank": rank, "err": err, "lines": lines})

    def _on_exit(self, child: Child) -> None:
        """The process has ended: read what it left, reap it, and tell."""
        child.gone = True
        self._selector.unregister(child.pidfd)
        with contextlib.suppress(KeyError, ProtocolError):
            self._selector.unregister(child.link.sock)
            self._pass_on(child, child.link.drain())
        self._last_output(child)
        status = self._reap(child.pid)
        os.close(child.pidfd)
        fate = Fate(
            "died",
            host=child.birth.host,
            pid=child.pid,
            exit_code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stack=child.fault_text(child.asked_faults),
            log_tail=_last_lines(child.log.tail),
            hint=child.hint,
        )
        if child.birth.mesh_id in self._stopping:
            fate = Fate("stopped", host=child.birth.host, pid=child.pid, exit_code=fate.exit_code, signal=fate.signal)
        self._pulse.forget(child)
        child.log.close()
        self._discard(child)
        mesh, rank = self._address(child)
        self._tell_root({"t": "gone", "mesh": mesh, "rank": rank, "fate": fate.to_wire()})
        self._sweep_soon(0.0)
        self._check_stopped(mesh)

    def _last_output(self, child: Child) -> None:
        deadline = time.monotonic() + _OUTPUT_GRACE
        for stream in tuple(child.streams):
            with contextlib.suppress(KeyError):
                self._selector.unregister(stream.fd)
            lines: list[tuple[str, str]] | None = []
            while lines is not None and time.monotonic() < deadline:
                before = lines
                lines = stream.read()
                if lines is None or (lines == [] and before == []):
                    break
                self._forward(child, stream.err, lines)
            self._forward(child, stream.err, stream.end())
        child.streams.clear()

    def _reap(self, pid: int) -> int:
        try:
            return os.waitpid(pid, 0)[1]
        except ChildProcessError:
            return 0

    # -- strays

    def _reap_strays(self, _events: int) -> None:
        self._strays.drain_signals()
        if not self._zygotes:  # else an orphan may be a rank that is reported in a moment
            self._strays.reap(self._own_pids())

    def _own_pids(self) -> set[int]:
        return {child.pid for child in self._children.values()} | set(self._zygotes)

    def _sweep(self) -> None:
        if self._zygotes:
            self._sweep_soon(0.05)
        elif self._strays.kill(self._own_pids()):
            self._sweep_soon(0.005)

    def _sweep_soon(self, seconds: float) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._later(seconds, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweeping = False
        self._sweep()

    # -- silent ranks

    def _tick(self) -> None:
        self._pulse.tick(tuple(self._children.values()))
        self._later(self._pulse.interval(len(self._children)), self._tick)

    def _ping(self, child: Child) -> None:
        self._send_rank(child, _PING)

    def _on_pulse(self, child: Child, state: str, stack: str) -> None:
        mesh, rank = self._address(child)
        self._tell_root({"t": "pulse", "mesh": mesh, "rank": rank, "state": state, "stack": stack})

    # -- stopping

    def _on_stop(self, message: dict[str, Any]) -> None:
        mesh = message["mesh"]
        grace = message["grace"]
        self._stopping.add(mesh)
        request = control_frame({"t": "stop", "drain": message["drain"]})
        for child in self._of(mesh):
            if child.pid:
                self._send_rank(child, request)
        if grace > 0:
            self._later(grace, lambda: self._signal(mesh, signal.SIGTERM))
        self._later(grace + _KILL_AFTER, lambda: self._signal(mesh, signal.SIGKILL))
        if grace <= 0:
            self._kill_zygotes(mesh)
        self._check_stopped(mesh)

    def _kill_zygotes(self, mesh: str) -> None:
        for zygote in self._zygotes.values():
            if zygote.mesh_id == mesh:
                os.kill(zygote.pid, signal.SIGKILL)

    def _of(self, mesh: str) -> list[Child]:
        return [child for (owner, _), child in self._children.items() if owner == mesh]

    def _signal(self, mesh: str, number: int) -> None:
        self._kill_zygotes(mesh)
        for child in self._of(mesh):
            if child.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child.pidfd, number)

    def _on_kill(self, message: dict[str, Any]) -> None:
        for rank in message["ranks"]:
            child = self._children.get((message["mesh"], rank))
            if child is not None and child.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child.pidfd, message["signal"])

    def _check_stopped(self, mesh: str) -> None:
        if mesh in self._stopping and not self._of(mesh):
            self._stopping.discard(mesh)
            self._sweep()
            self._tell_root({"t": "stopped", "mesh": mesh})

    def _kill_everything(self) -> None:
        """Leave nothing: ranks, their descendants, and strays with the mark of this program."""
        self._strays.kill_all(_KILL_EVERYTHING)
        if self._facts and not self._root_lives:
            _remove_sockets(self._facts["directory"])

    # -- timers and the rest

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append((time.monotonic() + seconds, action))
        self._timers.sort(key=lambda timer: timer[0])

    def _next_timer(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            self._timers.pop(0)[1]()

    def _warn(self, text: str) -> None:
        self._tell_root({"t": "warning", "text": text})


class _RootGoneError(Exception):
    pass


def _last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the last lines, together at most `_TAIL_MAX` characters."""
    kept: list[str] = []
    left = _TAIL_MAX
    for line in reversed(tuple(lines)):
        if left <= 0:
            break
        kept.append(line[-left:])
        left -= len(line)
    return tuple(reversed(kept))


def _remove_sockets(directory: str) -> None:
    import shutil  # start-up: only when the root died

    shutil.rmtree(directory, ignore_errors=True)


def serve(descriptor: int, main: Callable[..., None]) -> None:
    """Be the agent whose control link is ``descriptor``; returns when everything is gone."""
    osutil.set_name("meshrt-agent")
    osutil.set_subreaper()
    osutil.raise_file_limit()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # The root decides; a scheduler that signals the whole job must not take the agent away before it.
        signal.signal(number, signal.SIG_IGN)
    # Inherited by the ranks, until faulthandler has it: a rank that is slow to start must survive being asked.
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    try:
        Agent(socket.socket(fileno=descriptor), main).run()
    except Exception:
        traceback.print_exc()
        os._exit(1)
    # Nothing is left to finalize, and the root waits for this process.
    os._exit(0)
