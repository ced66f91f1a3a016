"""The root: one per program, in the process that makes the first mesh. Here its parts are built, in this order.

Each part is given what it needs when it is made, and nothing is put into it afterwards. A part that listens for an
event adds itself to a list of the part that raises it (``on_...``, ``rank_gone``). The one exception is
`meshrt.transport.process`, which keeps store and owner of the process for floors below (`Root._install`).

==============  ===================================================  ==================================================
part            what it is                                           what it is given
==============  ===================================================  ==================================================
LiveLogs        which output of ranks is shown                       the environment
Run             id, secret, directories, root pipe: made together    the limits of the environment
RootLoop        the loop and its thread                              -
Registry        the meshes, and who waits for births and ends        -
Restarts        which ranks are started again                        -
RootTree        births and ends, for calls of the script             registry, restarts, loop
Home            the agent whose store the script uses                loop
Store           this process's part of the shared memory             run, home, tree
ProcessRuntime  the program as this process sees it; its driver      run, tree, store
Background      the driver's links on the loop                       tree, driver, loop
Terminal        what is printed, on a thread of its own              -
Upkeep          keeps the directories                                run, terminal
Alarm           failures that the script is told of                  driver, registry
Services        what plug-ins, ranks and terminals may ask for       run, registry, driver, terminal, loop, alarm
ReceivedFiles   files of ranks on other machines                     run, services, terminal
Supervision     who decides on a failure                             registry, services, alarm
StrayErrors     errors that no caller waits for                      registry, services, supervision, tree
OverdueAgents   agents that do not answer at an end                  terminal
Stopping        the end of a mesh                                    registry, driver, restarts, loop, overdue agents
Lifecycle       births and ends of ranks                             registry, driver, services, supervision, restarts,
                                                                     stopping, loop
AgentReports    silence and output of ranks                          registry, services, terminal, live logs
RecordsOfRanks  log records of ranks, for the script's handlers      registry, services, agent reports, live logs,
                                                                     terminal
ScriptLevels    which of them the script wants                       registry, services, live logs
TerminalAccess  the socket and the files that terminals look for     run, loop, services, upkeep
Relays          ways between machines that do not reach each other   registry, services, run, loop, tree
HostAgents      the agents: greeted, heard, lost                     run, loop, lifecycle, reports, services, home, ...
Moving          ranks of lost machines start again elsewhere         loop, agents, lifecycle, services
Script          how the script ends, and what is printed then        services, driver, terminal, alarm, overdue agents
Ending          the end of the program; a forked child               every part that has something to end
Births          what an agent is asked to start                      services, restarts, levels
Spawning        the start of a mesh                                  agents, lifecycle, stopping, ending, ...
Singletons      the processes of actors with a name of their own     registry, spawning, stopping
ScriptOwner     what the handles of the script ask                   spawning, stopping, script, registry, services
Clients         what processes that are no part of it ask            run, registry, services, loop
RankRequests    what ranks ask                                       spawning, stopping, lifecycle, registry, ...
==============  ===================================================  ==================================================

::

    thread meshrt-root      uvloop: host agents, terminals, the driver in the background
    thread meshrt-terminal  writes what ranks print
    thread meshrt-logging   runs the script's handlers for log records of ranks

``stop()`` of a mesh ends its ranks; at exit (or with ``shutdown_context()``) everything ends: meshes, agents, threads,
directory (`meshrt.mesh.program`, `meshrt.mesh.ending`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from meshrt.host.osutil import raise_file_limit
from meshrt.mesh.agent_reports import AgentReports
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.births import Births
from meshrt.mesh.clients import Clients
from meshrt.mesh.ending import Ending
from meshrt.mesh.files import ReceivedFiles
from meshrt.mesh.home import Home
from meshrt.mesh.host_agents import HostAgents
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.moving import Moving
from meshrt.mesh.ownership import Ownership
from meshrt.mesh.records import RecordsOfRanks, ScriptLevels
from meshrt.mesh.registry import Registry
from meshrt.mesh.relays import Relays
from meshrt.mesh.requests import RankRequests
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.roottree import Background, RootTree
from meshrt.mesh.run import Limits, Run
from meshrt.mesh.script import Script
from meshrt.mesh.script_owner import ScriptOwner
from meshrt.mesh.services import Services
from meshrt.mesh.shown import shown_at_start
from meshrt.mesh.singletons import Singletons
from meshrt.mesh.spawning import Spawning
from meshrt.mesh.stopping import OverdueAgents, Stopping
from meshrt.mesh.supervision import Supervision
from meshrt.mesh.terminal import Terminal, TerminalLog
from meshrt.mesh.terminal_access import TerminalAccess
from meshrt.mesh.terminated import Terminated
from meshrt.mesh.unhandled import StrayErrors
from meshrt.mesh.upkeep import Upkeep
from meshrt.store.store import Store
from meshrt.transport.process import ProcessRuntime, set_runtime
from meshrt.transport.reserve import reserve
from meshrt.wire.operations import FilePart

__all__ = ["Root"]


class Root:
    """The program's root: its parts, as far as others use them.

    Args:
        over: Called when all of it has ended, with this root: another one may be made.

    Raises:
        UsageError: An environment variable has an invalid value.
        UsageError, OSError: There is no place for the directories, or no descriptor is free.
    """

    def __init__(self, over: Callable[[Root], None]) -> None:
        # First of all: an invalid value is refused before anything is made.
        limits, live = Limits.from_environment(), LiveLogs(shown_at_start())
        with contextlib.ExitStack() as undo:  # for the next attempt: descriptors may be short
            self.run = run = Run(limits)
            undo.callback(run.discard)
            self.loop = loop = RootLoop()
            self.registry = registry = Registry()
            restarts = Restarts()
            tree = RootTree(registry, restarts, loop)
            home = Home(loop)
            store = Store(run.directory, str(run.run_directory), run.secret, home.agent, home.host_of, tree.call_later)
            self.runtime = ProcessRuntime(
                run.run_id, run.address, run.secret, tree, store, is_root=True, certificate=lambda: run.certificate
            )
            undo.pop_all()
        driver = self.runtime.driver
        Background(tree, driver, loop)
        terminal = Terminal(f"meshrt logs {run.run_id}")
        for note in run.notes:
            terminal.announce(note)
        log = TerminalLog(terminal.announce)
        loop.on_start.append(log.begin)
        self.upkeep = upkeep = Upkeep(run.runtime_directory, run.run_directory, terminal.announce)
        upkeep.keep(run.pipe.path, run.pipe.make)
        alarm = Alarm(driver, registry.is_stopped)
        self.services = services = Services(
            run.run_id, run.run_directory, registry, driver, terminal, loop, alarm.when_told, alarm.unread
        )
        services.on_report(FilePart, ReceivedFiles(run.run_directory, terminal.announce).take)
        supervision = Supervision(registry, services, alarm)
        StrayErrors(registry, services, supervision, tree)
        overdue = OverdueAgents(terminal.announce)
        stopping = Stopping(registry, driver, restarts, loop, overdue, terminal.announce)
        lifecycle = Lifecycle(registry, driver, services, supervision, restarts, stopping, loop)
        lifecycle.on_rank_gone.append(Ownership(registry, services, stopping).rank_gone)
        reports = AgentReports(registry, services, terminal, live)
        records = RecordsOfRanks(registry, services, reports, live, terminal.announce)
        levels = ScriptLevels(registry, services, live)
        upkeep.at_look(levels.look)
        access = TerminalAccess(run, loop, services, upkeep)
        relays = Relays(registry, services, run, loop)
        tree.on_relay.append(relays.to_script)
        agents = HostAgents(run, loop, registry, services, lifecycle, reports, terminal, upkeep, home, relays)
        Moving(loop, agents, lifecycle, services)
        #: What engines are told of it.
        self.program = agents.program
        self.script = script = Script(services, driver, terminal, alarm, overdue)
        terminated = Terminated(driver, script.terminated)
        loop.post(lambda: terminated.start(loop.running))
        # Not at the first failure, of which the callers are to be told at once; nor while everything starts or ends.
        lifecycle.on_settled.append(script.load_failures)
        self.ending = Ending(
            run,
            self.runtime,
            loop,
            registry,
            terminal,
            log,
            alarm,
            supervision,
            stopping,
            overdue,
            script,
            agents,
            records,
            access,
            lambda: over(self),
        )
        births = Births(services.at_birth, restarts, levels.of)
        spawning = Spawning(
            loop, agents, births, registry, driver, services, lifecycle, stopping, self.ending, upkeep, terminal
        )
        singletons = Singletons(registry, spawning, stopping)
        self.owner = ScriptOwner(driver, registry, services, script, spawning, stopping, singletons, live)
        RankRequests(services, loop, registry, restarts, lifecycle, spawning, stopping, singletons)
        Clients(run, registry, services, loop)
        self._install()

    def _install(self) -> None:
        """Take this process over, now that every part is there."""
        self.runtime.owner = self.owner
        raise_file_limit()
        reserve.fill()
        self.runtime.driver.shield.install()
        self.script.install()
        set_runtime(self.runtime, on_fork=self.ending.in_forked_child)
