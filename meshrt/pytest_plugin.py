"""The pytest plug-in: meshes for a test, meshrt's report in the text of a failed test, shorter tracebacks.

pytest loads it by its entry point, in each run: it loads what it needs of meshrt when a test has used that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from meshrt.files import users_part

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter

    from meshrt.mesh.proc_mesh import ProcMesh
    from meshrt.mesh.root import Root
    from meshrt.testing import FaultPlan
    from meshrt.testing.declared import Fault

__all__ = [
    "MeshMaker",
    "MeshesOfTest",
    "meshrt_mesh",
    "pytest_addoption",
    "pytest_configure",
    "pytest_exception_interact",
    "pytest_runtest_makereport",
]

MeshMaker = Callable[..., "ProcMesh"]
"""`meshrt.proc_mesh`, with its arguments, and ``faults=``: faults, or a plan of them (`meshrt.testing.FaultPlan`)."""

_FRAMES = "meshrt_frames"
_LEAKS = "meshrt_leaks"
#: Seconds in which what a test has begun to end has ended.
_ENDS = 2.0
#: Seconds for meshes that a test has left.
_GRACE = 1.0
#: Of an item: whether its test has failed, and the plans of faults of its meshes.
_FAILED = pytest.StashKey[bool]()
_PLANS = pytest.StashKey["list[FaultPlan]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    parser.getgroup("debugging").addoption(
        "--meshrt-pm",
        action="store_true",
        help="Open meshrt's post-mortem prompt when a test fails by an error of a rank, on the root cause.",
    )
    parser.addini(_FRAMES, "Show frames of meshrt in tracebacks of failed tests.", type="bool", default=False)
    parser.addini(_LEAKS, "Report what a test with meshrt_mesh leaves in its process.", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse ``--meshrt-pm`` where nobody can type."""
    if not config.getoption("--meshrt-pm"):
        return
    if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--meshrt-pm needs a single process at a terminal: add -n 0 (pytest-xdist)")
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:  # between conftest files and tests pytest captures standard input only
        capture.suspend_global_capture(in_=True)
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        raise pytest.UsageError(
            "--meshrt-pm needs a terminal as standard input and output; without the option, failed tests show reports"
        )


def pytest_exception_interact(node: object, call: pytest.CallInfo[object], report: object) -> None:
    """Open the prompt on the root cause of a test that has failed by an error of a rank."""
    if not (isinstance(node, pytest.Item) and isinstance(report, pytest.TestReport) and call.excinfo is not None):
        return
    if not (node.config.getoption("--meshrt-pm") and "meshrt.mesh.program" in sys.modules):
        return
    from meshrt.mesh.program import running_root  # start-up: see above

    root, error = running_root(), call.excinfo.value
    file = root.script.file_of(error) if root is not None and root.script.report_of(error) else None
    if file is not None:
        from meshrt.commandline.shell import run_words  # start-up: as above

        with _terminal(node.config):
            _show(report, node.config.get_terminal_writer())
            run_words(["debug", "--open", str(file)])


@contextlib.contextmanager
def _terminal(config: pytest.Config) -> Iterator[None]:
    """Have the terminal in the block: what pytest captures is not captured there."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend(in_=True)
    try:
        yield
    finally:
        if capture is not None:
            capture.resume()


def _show(report: pytest.TestReport, writer: TerminalWriter) -> None:
    """Show what the report of a failed test has, as pytest does it in front of pdb."""
    writer.line()
    for title, text in report.sections:
        writer.sep(">", title)
        writer.line(text.rstrip())
    writer.sep(">", "traceback")
    report.toterminal(writer)
    writer.sep(">", "meshrt post-mortem: `h` lists the commands, `q` continues with the tests")
    writer.flush()  # its file is not that of the prompt


@pytest.fixture
def meshrt_mesh(request: pytest.FixtureRequest) -> Iterator[MeshMaker]:
    """Make meshes for one test: ``meshrt_mesh(gpus=4)`` is ``meshrt.proc_mesh(gpus=4)``.

    With ``faults=[testing.kill(3, at=testing.call("step", 5))]`` these happen to its ranks. After the test all meshes
    are stopped. The test fails if a fault has not happened, if it has left other meshes running, or threads,
    processes, descriptors or shared memory in this process, or if there is an error of a rank that nobody has read.
    """
    from meshrt.engine.start import proc_mesh  # start-up: see above
    from meshrt.mesh.program import running_root, start_root  # start-up: as above
    from meshrt.testing.leaks import Footprint, explained, left_behind  # start-up: as above

    first = start_root()
    first.loop.begin_and_wait()  # what it opens is none of the test's
    meshes = MeshesOfTest(first)
    before = Footprint.now()
    request.node.stash[_PLANS] = meshes.plans
    yield meshes.noting(proc_mesh)
    root, failed = running_root(), request.node.stash.get(_FAILED, False)
    problems = meshes.finish(root, failed=failed) if root is not None else []
    # The traceback of a failed test holds its variables, and another program has descriptors of its own.
    if root in (first, None) and not failed and request.config.getini(_LEAKS):
        left = left_behind(before, _ENDS, of_program=root is not None)
        problems += [f"the test has left these resources behind:\n{explained(left)}"] if left else []
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add meshrt's report to that of pytest, and leave frames of meshrt out."""
    error = call.excinfo.value if call.excinfo is not None else None
    # `pytest.fail`, which `pytest.raises` calls as well, raises no Exception.
    if isinstance(error, Exception | pytest.fail.Exception):
        item.stash[_FAILED] = True
        for plan in item.stash.get(_PLANS, []) if call.when == "call" else []:
            item.add_report_section(call.when, "meshrt faults", str(plan))
    root = _root_if_loaded()
    if isinstance(error, Exception) and "meshrt.mesh.program" in sys.modules:
        text = "" if root is None else root.script.report_of(error)
        if text:
            item.add_report_section(call.when, "meshrt", text)
        if not (item.config.getini(_FRAMES) or item.config.getoption("fulltrace")):
            error.__traceback__ = users_part(error.__traceback__) or error.__traceback__
            call.excinfo = pytest.ExceptionInfo.from_exception(error)
    if root is not None and call.when == "teardown":
        root.script.begin_anew()
    return (yield)


def _root_if_loaded() -> Root | None:
    """Return the program of this process; None: no test has made one."""
    if "meshrt.mesh.program" not in sys.modules:
        return None
    from meshrt.mesh.program import running_root  # start-up: see above

    return running_root()


class MeshesOfTest:
    """The meshes of one test in a program that goes on."""

    def __init__(self, root: Root) -> None:
        self._before = set(_running(root))
        self._made: list[ProcMesh] = []
        #: The plans of faults of these meshes.
        self.plans: list[FaultPlan] = []

    def noting(self, make: MeshMaker) -> MeshMaker:
        """Return ``make``, whose meshes are noted, and have the faults of ``faults=``."""

        def noted(
            *args: object, faults: FaultPlan | Fault | Iterable[Fault] | None = None, **settings: object
        ) -> ProcMesh:
            mesh = make(*args, **settings)
            self._made.append(mesh)
            if faults is not None:
                from meshrt.testing import FaultPlan  # start-up: as above

                several = faults if isinstance(faults, Iterable) else [faults]
                plan = faults if isinstance(faults, FaultPlan) else FaultPlan(*several)
                plan.begin(mesh)
                self.plans.append(plan)
            return mesh

        return noted

    def finish(self, root: Root, *, failed: bool = False) -> list[str]:
        """Stop all meshes that are new; returns what the test has left, in words.

        Args:
            failed: The test has failed: that its faults have not happened is no problem of its own.
        """
        from meshrt.mesh.owner import owner_for_new  # start-up: as above

        missing = [text for text in [plan.end(failed=failed) for plan in self.plans] if text and not failed]
        for mesh in self._made:
            mesh.stop()
        own = {mesh.mesh_id for mesh in self._made}
        left = {mesh_id: name for mesh_id, name in _running(root).items() if mesh_id not in self._before | own}
        for mesh_id in left:
            owner_for_new().stop(mesh_id, _GRACE, "").get()
        root.ending.settle()
        unread, report = root.script.take_unread()
        problems = missing + [f"an error that nobody has read: {line}" for line in unread]
        problems += [report] if report else []
        names = [name for name in left.values() if name]
        return [*problems, f"meshes that the test has left running: {', '.join(names)}"] if names else problems


def _running(root: Root) -> dict[str, str]:
    """Return the names of the script's meshes that run, by id; "" of a singleton, which is to live on."""
    return {
        mesh_id: "" if record.singleton else record.name
        for mesh_id, record in tuple(root.registry.meshes.items())
        if record.owner is None and record.alive()
    }
