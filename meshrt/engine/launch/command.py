"""``meshrt launch``: host 0 runs the script, the others become host agents."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Mapping

from meshrt.commandline.command import Arguments
from meshrt.engine.agent_process import AGENT_PROGRAM
from meshrt.engine.launch.hosts import LaunchEngine, identity
from meshrt.engine.launch.launchers import JOB, Launched, detect
from meshrt.engine.launch.rendezvous import ROOT, SECRET_FILE, Rendezvous, choose
from meshrt.engine.launch.script import Script
from meshrt.errors import UsageError
from meshrt.mesh.default_engine import use_engine
from meshrt.mesh.program import start_root
from meshrt.transport.helper import interpreter

__all__ = ["be_host", "run_engine", "show", "unbind"]


def show(arguments: Arguments) -> int:
    """Run ``meshrt launch``. Returns the exit status of the script; on other hosts it does not return."""
    variables = dict(os.environ)
    for name, option in ((ROOT, "root"), (SECRET_FILE, "secret_file"), (JOB, "job")):
        if arguments[option]:
            variables[name] = arguments[option]
    found = detect(variables, arguments["hosts"], arguments["index"])
    fewest = arguments["min_hosts"] or found.hosts
    if fewest > found.hosts:
        raise UsageError(f"--min-hosts {fewest}, but the number of hosts is {found.hosts} ({found.launcher})")
    unbind(variables)
    rendezvous = choose(found, variables) if found.hosts > 1 else None
    if found.index == 0 or rendezvous is None:
        return _run_script(found, rendezvous, fewest, arguments)
    return be_host(found, rendezvous, arguments["timeout"])


def unbind(variables: Mapping[str, str]) -> bool:
    """Undo the default binding of Open MPI. Returns whether this process was bound by it.

    Open MPI binds each process to one core, or to one socket where there are more than two processes, unless the user
    asks for something else. Here one process is a whole host, and its ranks inherit the binding. What SLURM allocates
    is left as it is: the user has asked for it.
    """
    bound = variables.get("OMPI_MCA_orte_bound_at_launch") == "1"
    asked = "OMPI_MCA_hwloc_base_binding_policy" in variables
    asked = asked or ":pe=" in variables.get("OMPI_MCA_rmaps_base_mapping_policy", "").lower()
    if not bound or asked:
        return False
    # The kernel leaves out what the cgroup of the process has not.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
    return True


def be_host(
    found: Launched, rendezvous: Rendezvous, seconds: float, before: Callable[[], object] = lambda: None
) -> int:
    """Become the agent of this host, in this process: signals, limits and devices stay those of the launcher.

    Args:
        before: Called when host 0 has answered.
    Raises:
        TimeoutError: Host 0 has not answered in time.
    """
    text = rendezvous.wait(seconds, lambda line: _tell(f"host {found.index}: {line}"))
    rendezvous.way.leave()
    file = os.memfd_create("meshrt-invitation", os.MFD_CLOEXEC)
    os.write(file, text)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    before()
    words = [*interpreter(), str(AGENT_PROGRAM), "-", identity(found.index)]
    sys.stdout.flush()
    os.execv(words[0], words)


def _tell(text: str) -> None:
    """Print a line on standard error."""
    with contextlib.suppress(OSError):
        print(f"meshrt: {text}", file=sys.stderr, flush=True)


def _run_script(found: Launched, rendezvous: Rendezvous | None, fewest: int, arguments: Arguments) -> int:
    with run_engine(found, rendezvous, fewest, arguments["timeout"]):
        return Script(arguments["words"]).run()


@contextlib.contextmanager
def run_engine(
    found: Launched, rendezvous: Rendezvous | None, fewest: int, seconds: float
) -> Generator[None, None, None]:
    """Have the meshes of this process be placed on the hosts of its launcher, which join by the rendezvous.

    Args:
        found: This process, on host 0.
        rendezvous: None: there is one host.
        fewest, seconds: How many hosts have to join before the first mesh starts, and how long that may take.
    """
    root = start_root()
    engine = LaunchEngine(found, fewest, seconds, _tell)
    if rendezvous is None:
        engine.open(root.program, b"", 0)
    else:
        rendezvous.publish(engine.open(root.program, rendezvous.secret, rendezvous.port))
        engine.on_complete.append(rendezvous.way.close)
    use_engine(engine)
    try:
        yield
    finally:  # also where there is no script: the other hosts are to end, too
        engine.linger()
        if rendezvous is not None:
            rendezvous.way.close()
