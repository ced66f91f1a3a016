"""The root: one per program, in the process that makes the first mesh.

::

    thread meshrt-root      uvloop: host agents, terminals, the driver in the background
    thread meshrt-terminal  writes what ranks print

``stop()`` of a mesh ends its ranks; at exit (or with `shutdown`) everything ends: meshes, agents, threads, directory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meshrt.errors import ShutdownError, SpawnError, UsageError, one_line
from meshrt.hooks.plugins import plugins
from meshrt.hooks.table import hooks
from meshrt.host.osutil import raise_file_limit
from meshrt.mesh.agents import AgentLink, AgentPulse, Placed
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.births import spawn_frames
from meshrt.mesh.future import Future
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.log import TerminalLog
from meshrt.mesh.overdue import OverdueAgents
from meshrt.mesh.owner import why_ended
from meshrt.mesh.placement import Placement
from meshrt.mesh.progress import Progress
from meshrt.mesh.registry import MeshRecord, Owner, Registry
from meshrt.mesh.requests import RankRequests
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.roottree import RootTree
from meshrt.mesh.script import Script
from meshrt.mesh.services import Services
from meshrt.mesh.spec import MeshSpec, check_limits
from meshrt.mesh.status import die_by
from meshrt.mesh.supervision import Supervision
from meshrt.mesh.terminal import Terminal
from meshrt.mesh.terminated import Terminated
from meshrt.mesh.threads import at_main_end
from meshrt.mesh.upkeep import Upkeep
from meshrt.selection import Shape
from meshrt.store.limits import LOGS_LIMIT, RUNS_LIMIT, size_asked_for, store_limit
from meshrt.store.protocol import store_path
from meshrt.store.store import Store
from meshrt.transport import directories, dirlock
from meshrt.transport.fate import Fate
from meshrt.transport.process import INCARNATION, ProcessRuntime, set_runtime, socket_path
from meshrt.transport.reserve import reserve
from meshrt.transport.rootpipe import RootPipe
from meshrt.transport.tools import TOKEN, publish
from meshrt.wire.codec import text_of
from meshrt.wire.handshake import Secret
from meshrt.wire.messages import Address

if TYPE_CHECKING:
    from meshrt.mesh.toolserver import ToolServer

__all__ = ["Root", "owner_of", "shutdown", "start_root"]

#: Bytes of the script's arguments that the ranks are told.
_ARGV_MAX = 512 << 10
#: Seconds beyond the grace after which an agent that has not ended a mesh is no longer waited for (it kills at 0.5).
_OVERDUE = 0.8
#: Characters of the error that ended the main thread.
_WHY = 300
#: Bytes of the logs of ranks for each host agent, and of the directories of programs that have ended.
_LOGS_MAX = 1 << 30
_RUNS_MAX = 4 << 30
#: Seconds after which a program has started.
_SETTLED = 1.0
#: Seconds for which the end of a program waits for ranks that are still being started.
_START_MAX = 10.0
#: ... and for owners that decide on a failure.
_DECIDE = 1.0


class Root:
    """The program's root. Methods may be called from any thread unless said otherwise."""

    def __init__(self) -> None:
        #: First of all: the user may have asked for something that cannot be read.
        self._store_limit = store_limit()
        self._logs_limit = size_asked_for(LOGS_LIMIT, _LOGS_MAX)
        runs_limit = size_asked_for(RUNS_LIMIT, _RUNS_MAX)
        self.run_id = secrets.token_hex(4)
        self.pid = os.getpid()
        self._started = time.clock_gettime(time.CLOCK_REALTIME)  # for people only: deadlines use the monotonic clock
        notes: list[str] = []
        self._secret = Secret(secrets.token_bytes(32))
        self._tree = RootTree(self)
        with contextlib.ExitStack() as undo:  # for the next attempt: descriptors may be short
            self._runtime_directory = directories.create_runtime(self.run_id, notes.append)
            self.directory = str(self._runtime_directory)
            undo.callback(directories.discard, self._runtime_directory)
            #: Its end tells agents and ranks of that of this process.
            self._pipe = RootPipe(self.directory)
            undo.callback(self._pipe.close)
            self.run_directory = directories.create_run(self.run_id, notes.append, runs_limit)
            undo.callback(directories.discard, self.run_directory)
            self._store_serves = threading.Event()
            #: The agent whose store knows what the script writes.
            self._home: AgentLink | None = None
            store = Store(
                self.directory,
                str(self.run_directory),
                self._secret,
                self._store_agent,
                self._host_of,
                self._tree.call_later,
            )
            self.runtime = ProcessRuntime(self.run_id, self.directory, self._secret, self._tree, store, is_root=True)
            undo.pop_all()
        self.driver = self.runtime.driver
        self.registry = Registry()
        self.terminal = Terminal()
        self.services = Services(self.run_id, self.run_directory, self.registry, self.driver, self.terminal)
        for note in notes:
            self.services.announce(note)
        self.upkeep = Upkeep(self._runtime_directory, self.run_directory, self.services.announce)
        self.alarm = Alarm(self.driver, self.registry.is_stopped)
        self.services.told = self.alarm.told_at
        self.supervision = Supervision(self.registry, self.services, self.alarm)
        self.services.supervise = self.supervision.stray
        self.restarts = Restarts()
        self.services.actor_ended = self.restarts.forget_actor
        self._overdue = OverdueAgents(self.services.announce)
        self.script = Script(self.services, self.driver, self.terminal, self.alarm, self._overdue)
        self.lifecycle = Lifecycle(
            self.registry,
            self.driver,
            self.services,
            self.terminal,
            self.supervision,
            self.restarts,
            self.post,
            self.stop,
        )
        self.services.rank_events["cut"] = self.lifecycle.cut
        self.services.deferred_operations.update(RankRequests(self).operations)
        self._placement = Placement(
            self.run_id, self._connect, lambda agent: self.post(lambda: agent.attach(self.loop))
        )
        self._log = TerminalLog(self.services.announce)
        self._names = 0
        self._lock = threading.RLock()
        #: uvloop, once it runs.
        self.loop: Any = None
        self._posted: list[Callable[[], None]] = []
        self._end: Any = None
        self._tools: ToolServer | None = None
        self._agents_pulse = AgentPulse(self.services.announce)
        #: Why the loop ended before its time.
        self._failure = ""
        self.closed = False
        #: The interpreter is on its way out.
        self.at_exit = False
        self._last: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self._run, name="meshrt-root", daemon=True)
        raise_file_limit()
        reserve.fill()
        self.driver.shield.install()
        self.script.install()
        set_runtime(self.runtime, on_fork=self._in_forked_child)

    # -- meshes

    def spawn(self, spec: MeshSpec, engine: Any = None, owner: Owner | None = None) -> str:
        """Start the ranks of a mesh; returns its id at once. ``owner``: which rank has asked for it.

        Raises:
            SpawnError: The machine cannot hold them.
            UsageError: What a rank is told at its birth is too long.
        """
        self._check_open()
        self.upkeep.mend()  # the ranks listen there
        count = spec.extent.nelements
        check_limits(count, sum(len(record.alive()) for record in self.registry.running()))
        self.services.load_asked_for()
        agents = self._placement.of(engine)
        self.begin()
        with self._lock:
            self._names += 1
            name = spec.name or f"mesh{self._names}"
        births = functools.partial(self._births, spec)
        record = MeshRecord(secrets.token_hex(4), name, spec, agents, self.driver, owner, births)
        frames: dict[AgentLink, list[bytes]] = {}
        for agent in record.agents:
            frames[agent] = record.births([rank for rank in range(count) if record.agent_of[rank] is agent])
        # Known from here on: what could be refused has been.
        self.lifecycle.progress[record.mesh_id] = Progress(count, self.terminal)
        self.registry.add(record)
        if self._failure:  # since it was asked: this mesh was not known then
            self._fail(record)
            return record.mesh_id
        for agent, asked in frames.items():
            agent.send_frames(asked)
            if agent.gone:  # since it was chosen: its end has been handled before this mesh was known
                self.post(lambda agent=agent: self.lifecycle.lose(agent))  # type: ignore[misc]
        return record.mesh_id

    def _births(self, spec: MeshSpec, record: MeshRecord, ranks: list[int]) -> list[bytes]:
        common: dict[str, Any] = {
            "t": "spawn",
            "mesh": record.mesh_id,
            "name": record.name,
            "labels": list(spec.extent.labels),
            "sizes": list(spec.extent.sizes),
            "common_env": dict(spec.env),
            "preload": list(spec.preload),
            "operations": [[name, body] for operations in self.services.at_birth for name, body in operations()],
        }
        for rank in record.incarnations.keys() & set(ranks):  # one at a time
            again = self.restarts.actors(record.mesh_id, rank)
            gone = [actor for actor, had in record.actors.items() if rank in had and actor not in again]
            common["operations"].append(["stopped", {"actors": gone}])
        env = {rank: dict(spec.rank_env.get(rank, {})) for rank in ranks}
        for rank in record.incarnations.keys() & env.keys():
            env[rank][INCARNATION] = str(record.incarnations[rank])
        return spawn_frames(common, ranks, {rank: own for rank, own in env.items() if own})

    def name_of(self, mesh_id: str) -> str:
        """Return the name of a mesh."""
        return self.registry.meshes[mesh_id].name

    def initialized(self, mesh_id: str) -> Future[None]:
        """Return the future that is done when every rank runs."""
        return self.registry.meshes[mesh_id].initialized

    def about(self, mesh_id: str, rank: int) -> tuple[str, int]:
        """Return host and pid of a rank, as far as known."""
        record = self.registry.meshes[mesh_id]
        return record.agent_of[rank].host, record.pids.get(rank, 0)

    def check_whole(self, mesh_id: str, shape: Shape) -> None:
        """Raise UsageError if ``shape`` is a part of the mesh only."""
        record = self.registry.meshes[mesh_id]
        if len(shape) != len(record.shape):
            raise UsageError(
                f"{record.name} is stopped as a whole: this is a slice of it ({shape} of {record.shape}); "
                "stop an actor on a slice with its own stop()"
            )

    def failed(self, mesh_id: str, error: BaseException) -> None:
        """A block that owns a mesh ends with an exception, and the mesh with it."""
        self.registry.meshes[mesh_id].abandoned = True
        self.script.failed(error)

    def left(self, mesh_id: str) -> None:
        """A block that owns a mesh ends well, and the mesh with it."""
        self.registry.meshes[mesh_id].left = True

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Tell of calls to the mesh that are not answered for so long."""
        self.script.watch(mesh_id, seconds)

    def listen_for_ide(self, port: int) -> None:
        """Let an IDE attach to the program at a port of this machine."""
        plugins.load("dap", self.services, in_root=True)
        self.services.tables["dap"].listen(port)

    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]:
        """End a mesh; the same future for everybody who asks. ``why``: the error that is the reason."""
        record = self.registry.meshes[mesh_id]
        record.interrupt_after(grace)
        with self._lock:
            if record.stopped is not None:
                if grace <= 0 and not record.stopped.finished:
                    record.grace = 0.0
                    self._send_stop(record, 0.0, why, drain=False)
                return record.stopped
            record.grace = max(0.0, grace)
            stopped = record.begin_stop(self.driver)
            if self._failure:
                stopped.resolve(None)
        # The request to stop takes another way than calls do, and must not arrive before them.
        self.driver.queues.when_written(
            mesh_id, grace, lambda left: self._send_stop(record, left, why, drain=grace > 0)
        )
        self.post(lambda: self.lifecycle.check_stopped(record))
        return stopped

    def _send_stop(self, record: MeshRecord, grace: float, why: str, *, drain: bool) -> None:
        for agent in record.agents:
            if not agent.gone:
                agent.send({"t": "stop", "mesh": record.mesh_id, "grace": grace, "drain": drain, "why": why})
        self.post(lambda: self.loop.call_later(grace + _OVERDUE, self._stop_overdue, record))

    def _stop_overdue(self, record: MeshRecord) -> None:
        """An agent does not answer (it was stopped itself?): end its ranks without it. On the loop."""
        for agent in record.agents:
            if agent.gone or agent in record.stopped_agents:
                continue
            ranks = [rank for rank in record.alive() if record.agent_of[rank] is agent]
            agent.kill_ranks([record.pids[rank] for rank in ranks if rank in record.pids])
            for rank in ranks:
                fate = Fate("stopped", host=agent.host, pid=record.pids.get(rank, 0))
                self.lifecycle.gone(record.mesh_id, rank, fate)
            record.stopped_agents.add(agent)
            self._overdue.add(agent)
        self.lifecycle.check_stopped(record)

    def _connect(self, placed: Placed) -> AgentLink:
        write = functools.partial(self.terminal.write, err=True)
        link = AgentLink(placed, self._on_agent, self._on_rank, self._on_agent_gone, write)
        link.send(
            {
                "t": "hello",
                "secret": self._secret,
                "run_id": placed.mark,
                "directory": _path_bytes(self.directory),
                "run_directory": _path_bytes(str(self.run_directory)),
                "sys_path": [_path_bytes(entry or _working_directory()) for entry in sys.path],
                "argv": _short(sys.argv) or [""],
                "host": placed.host,
                "root_pid": self.pid,
                "store_limit": self._store_limit,
                "families": link.families,
                "logs_limit": self._logs_limit,
            }
        )
        return link

    def _store_agent(self, seconds: float) -> int:
        """Return the pid of the agent whose store knows what the script writes; 0: none serves within so long."""
        if seconds and self._placement.all() and threading.current_thread() is not self._thread:
            self._store_serves.wait(seconds)
        # Always the same one while it lives: on whose machine the script is others have been told.
        if self._home is None or self._home.gone:
            self._home = next((agent for agent in self._placement.all() if agent.serves and not agent.gone), None)
        return 0 if self._home is None else self._home.process.pid

    def _host_of(self, agent_pid: int) -> str:
        return next((agent.host for agent in self._placement.all() if agent.process.pid == agent_pid), "")

    def _check_open(self) -> None:
        if self.closed or sys.is_finalizing():
            raise ShutdownError("the program is ending: no new mesh can be started")
        if self._failure:
            raise SpawnError(self._failure)

    # -- loop

    def begin(self) -> None:
        """Start the loop's thread, once."""
        with self._lock:
            if not self._thread.is_alive():
                # Loaded here, while the agent starts beside us: a thread that imports it may be overtaken by the
                # interpreter's end, which forbids that.
                import uvloop  # noqa: F401 - start-up: as said

                import meshrt.mesh.toolserver  # noqa: F401 - start-up: as said

                self._log.begin()
                self._thread.start()

    def post(self, function: Callable[[], None]) -> None:
        """Run ``function`` on the loop, in order."""
        with self._lock:
            if self.loop is None:
                self._posted.append(function)
                return
        with contextlib.suppress(RuntimeError):  # the loop has been closed: so has what it would act on
            self.loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        import uvloop  # start-up: see `begin`

        try:
            loop = uvloop.new_event_loop()
        except Exception as error:  # it takes some descriptors
            self._broken(error)
            for agent in self._placement.all():
                agent.close()
            return
        try:
            loop.run_until_complete(self._serve(loop))
        except BaseException as error:
            self._broken(error)
        finally:
            loop.close()

    def _broken(self, error: BaseException) -> None:
        """The loop has failed, and nothing can be served any more: say so to everybody who waits."""
        why = f"the runtime failed in this process: {type(error).__name__}: {error}"
        logging.getLogger("meshrt").critical(why, exc_info=error)
        with self._lock:
            self._failure = why
        for agent in self._placement.all():
            agent.kill()
        for record in self.registry.running():
            self._fail(record)

    def _fail(self, record: MeshRecord) -> None:
        """End a mesh that nobody serves, as the loop has failed. Any thread, also two of them."""
        for agent in record.agents:
            agent.kill()
        for rank in record.alive():
            for callback in self.registry.gone(record.mesh_id, rank, Fate("unborn", hint=self._failure)):
                callback()
        record.initialized.reject(SpawnError(self._failure))
        if record.stopped is not None:
            record.stopped.resolve(None)
        self.driver.lost.fail_pending()

    async def _serve(self, loop: Any) -> None:
        import asyncio  # start-up: see `begin`

        from meshrt.mesh.toolserver import ToolServer  # start-up: see `begin`

        self._end = asyncio.Event()
        self.services.attach(loop)
        token = Secret(secrets.token_bytes(32))
        tools = ToolServer(f"{self.directory}/tools", token, self.services.serve_tool, self.services.tool_gone)
        self._tools = tools
        await tools.start()
        facts = {"started": self._started, "cwd": _working_directory(), "run_directory": str(self.run_directory)}
        publish_program = functools.partial(publish, self._runtime_directory, token, {"run_id": self.run_id, **facts})
        publish_program()
        self.upkeep.keep(self._pipe.path, self._pipe.make)
        self.upkeep.keep(self._runtime_directory / "tools", tools.listen_again)
        for name in (TOKEN, dirlock.PROGRAM):
            self.upkeep.keep(self._runtime_directory / name, publish_program)
        with self._lock:
            self.loop = loop
            posted, self._posted = self._posted, []
        for function in posted:
            function()
        self._agents_pulse.start(loop, self._placement.all, self.upkeep.look)
        Terminated(self.driver, self.script.terminated).start(loop)
        # Not at the first failure, which wants to be told at once; nor while everything else starts.
        loop.call_later(_SETTLED, self.script.load_failures)
        await self._end.wait()
        hooks.run(self.services.closing)
        self.upkeep.end()
        tools.close()
        # Before the agents are told that this program cleans up itself: it might be killed right behind that.
        directories.remove_tree(self._runtime_directory)
        for agent in self._placement.all():
            agent.close()
        self._tree.drive(False)
        await asyncio.sleep(0.01 if tools.clients else 0)

    # -- agents

    def _on_agent(self, agent: AgentLink, message: dict[str, Any]) -> None:
        match message["t"]:
            case "started":
                self.lifecycle.started(message["mesh"], message["rank"], message["pid"])
            case "gone":
                self.lifecycle.gone(message["mesh"], message["rank"], Fate.from_wire(message["fate"]))
            case "stopped":
                self.lifecycle.stopped_on(agent, self.registry.meshes[message["mesh"]])
            case "output":
                self.lifecycle.output(message)
            case "pulse":
                self.lifecycle.pulse(message)
            case "gathered":
                self.services.gathers.received(message)
            case "serves":
                agent.serves = True
                self._store_serves.set()
            case "measured":
                self.services.measures.received(agent, message)
            case "pong":
                agent.answered(message.get("number", 0))
                self._agents_pulse.answered(agent)
            case "dropped":
                self.lifecycle.dropped(message["ranks"])
            case "warning":
                self.services.announce(message["text"])

    def _on_rank(self, address: Address, message: dict[str, Any]) -> None:
        if message["t"] == "ev" and message["ev"] == "failure.record":
            for agent in self._placement.all():  # which of them had not ended before that
                agent.look()
        self.services.on_rank(address, message)

    def _on_agent_gone(self, agent: AgentLink) -> None:
        self._placement.lose(agent)
        directory = self.runtime.directory
        sockets = [socket_path(directory, *address) for address in self.registry.placed_on(agent)]
        for path in (store_path(directory, agent.process.pid), *sockets):
            with contextlib.suppress(FileNotFoundError):  # it had removed some itself
                os.unlink(path)
        if not self._placement.all():
            self._store_serves.set()  # who waits for one to serve waits no longer
            self._store_serves.clear()
        self.services.measures.gone(agent)
        self.lifecycle.lose(agent)

    # -- actors in this process (`meshrt.mesh.this_proc`)

    def on_own_actor(self, message: dict[str, Any]) -> None:
        """An actor of this process has something to tell."""
        self.post(lambda: self.services.on_rank(("", 0), message))

    def at_end(self, function: Callable[[], object]) -> None:
        """Run ``function`` when the program ends."""
        self._last.append(function)

    # -- the end

    def shutdown(self, grace: float = 5.0, why: str = "") -> None:
        """Stop everything; Ctrl-C skips the grace, a second one kills at once. ``why``: an error is the reason."""
        if self.closed or os.getpid() != self.pid:
            return
        self.closed = True
        self.alarm.silence()
        for record in self.registry.running():
            record.abandoned = record.abandoned or record.stopped is None
        # Ctrl-C ends the waits for ranks; what comes after them is short, and is done whatever happens.
        shield = self.driver.shield
        shield.close()
        try:
            for wait in (grace, 0.0):
                try:
                    self._overdue.resume(self._placement.all())
                    self._overdue.hear()
                    if wait:
                        self._let_start()
                        self.supervision.settle(_DECIDE)
                    self._stop_all(wait, why)
                    self._overdue.hear()
                    break
                except (KeyboardInterrupt, TimeoutError):
                    continue
            self._finish()
        finally:
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    shield.open()
                shield.uninstall()
            finally:
                _forget(self)

    def _stop_all(self, grace: float, why: str) -> None:
        """Stop every mesh, the latest first, for it may use those before it until its end.

        Each has its grace, but those before a slow one wait only so long for it. What a rank has made is stopped
        together with the rank's own mesh. Raises TimeoutError.
        """
        deadline = time.monotonic() + grace
        futures = []
        for meshes in self.registry.running_by_script():
            begun = [self.stop(record.mesh_id, grace, why) for record in meshes]
            for future in begun:
                self.driver.wait(future, max(0.0, deadline - time.monotonic()))
            futures += begun
        for future in futures:
            future.get(grace + 2.0)

    def _let_start(self) -> None:
        """Wait for meshes that are starting: what was sent to them has not left yet; the grace is for serving it."""
        deadline = time.monotonic() + _START_MAX
        for record in self.registry.running():
            self.driver.wait(record.initialized, max(0.0, deadline - time.monotonic()))

    def _finish(self) -> None:
        self.supervision.finish()
        self.script.at_end(sets_status=self.at_exit)
        for function in self._last:
            function()
        self.script.uninstall()
        if self._thread.is_alive():
            self.post(lambda: self._end.set())
            self._thread.join(5.0)
        self._placement.end()
        self._log.end()
        self.terminal.close()
        self.runtime.close()
        set_runtime(None, ended=True)
        self._pipe.close()
        reserve.release()
        directories.discard(self._runtime_directory)
        if directories.is_empty(self.run_directory):
            directories.remove_tree(self.run_directory)
        dirlock.unlock(self.run_directory)

    def _in_forked_child(self) -> None:
        """A fork of the script must not keep its links open: agents and terminals would not see its end."""
        hooks.clear()
        plugins.clear()
        self._pipe.close()
        self.script.uninstall()
        for agent in self._placement.all():
            agent.abandon()
        if self._tools is not None:
            self._tools.abandon()


def _path_bytes(path: str) -> bytes:
    """Return a path as the kernel knows it: bytes, which may be no UTF-8."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return path.encode(errors="backslashreplace")  # it names nothing


def _short(argv: list[str]) -> list[str]:
    """Return as much of the arguments as a control message takes."""
    lengths = itertools.accumulate(4 * len(argument) for argument in argv)
    return [argument for argument, length in zip(argv, lengths, strict=True) if length < _ARGV_MAX]


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it has been removed


_root: Root | None = None
_root_lock = threading.Lock()
#: The interpreter runs its exit handlers, ours has run: nothing would end what starts now.
_ended = False


def start_root() -> Root:
    """Return the root of this process; the first call starts it. Raises ShutdownError at the end of the program."""
    global _root
    with _root_lock:
        if _root is None or _root.pid != os.getpid():
            if _ended or sys.is_finalizing():
                raise ShutdownError("the interpreter is ending: no new mesh can be started")
            first = _root is None
            _root = Root()
            if first:
                atexit.register(_at_exit)
                at_main_end(_at_main_end)
        return _root


def owner_of(mesh_id: str) -> Root | None:
    """Return the root if it owns the mesh."""
    root = _root
    if root is None or root.pid != os.getpid() or mesh_id not in root.registry.meshes:
        return None
    return root


def _at_main_end() -> None:
    """The main thread has ended: Python waits for all others, and calls `_at_exit` behind that."""
    error = getattr(sys, "last_value", None)
    if _root is not None and _root.pid == os.getpid() and error is not None and not hasattr(sys, "ps1"):
        _root.script.main_ended = True
        _root.alarm.end_waits(one_line(f"{type(error).__name__}: {text_of(error)}", _WHY))


def _at_exit() -> None:
    global _ended
    _ended = True
    if _root is not None:
        _root.at_exit = True
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    shutdown(0.5 if error is None else 0.0, why_ended(error))
    # CPython keeps that an unhandled Ctrl-C has ended the script in one flag of the process, and each string that is
    # executed takes it back, on whichever thread: `@dataclass` does, in what is loaded at the end. A shell's loop goes
    # on then. An interactive interpreter ends by itself, whatever its last error was.
    if isinstance(error, KeyboardInterrupt) and not hasattr(sys, "ps1"):
        die_by(signal.SIGINT)


def shutdown(grace: float = 5.0, why: str = "") -> None:
    """End every mesh, the agents and the threads of meshrt; a later mesh starts anew.

    Args:
        why: The error that is the reason.
    """
    root = _root
    if root is not None:
        root.shutdown(grace, why)


def _forget(root: Root) -> None:
    """Only now may another one start: both would take the process's runtime, and each other's away."""
    global _root
    with _root_lock:
        if _root is root:
            _root = None
