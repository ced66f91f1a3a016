"""Settings of every test run, and the check that tests with real processes leave nothing behind."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["meshrt.pytest_plugin", "tests.support.processor_time", "tests.support.watchdog"]

HERE = Path(__file__).resolve().parent
#: Of `addopts` in pyproject.toml.
_USUAL = "not nightly and not slow"

#: Folders whose tests start processes: each test there is checked for what it leaves.
CHECKED = frozenset({"functional", "faults", "debug", "dap", "hosts"})

#: Tests that do not depend on the version of Python: of kernel, sockets, files, pure functions and syntax trees. Checks
#: on several versions run them on the oldest one (marker ``one_python``). All other tests run on each version.
ONE_PYTHON = (
    *(
        f"cluster/test_{name}.py"
        for name in (
            *("arrays", "causes", "delay", "example", "files", "full_disk", "joined", "kubernetes", "launch", "logs"),
            *(
                "loss",
                "mixed",
                "mpi",
                "placing",
                "ray",
                "reach",
                "slurm",
                "ssh",
                "strangers",
                "timeline",
                "tools",
                "torchrun",
            ),
            *("two_machines", "via"),
        )
    ),
    "fuzz/",
    "hosts/",
    "house/",
    "soak/",
    "test_advice.py",
    "test_bench.py",
    "test_docs.py",
    "test_fault_table.py",
    "test_house.py",
    "test_layers.py",
    "test_manifests.py",
    "test_pictures.py",
    "test_website.py",
    "types/",
    "unit/failure/test_report.py",
    *(f"unit/{package}/" for package in ("commandline", "program", "selection", "show", "store", "top", "transport")),
    *(
        f"functional/test_{name}.py"
        for name in (
            *(
                "collectives",
                "connect",
                "ddp",
                "exit_codes",
                "failures_page",
                "gather",
                "hosts",
                "joined",
                "launch",
                "lifetime",
                "limits",
                "machine",
                "memory_page",
            ),
            *(
                "order",
                "output",
                "payloads",
                "planted",
                "ports",
                "response_ports",
                "programs",
                "programs_page",
                "restarts",
                "scripts",
                "security_page",
                "singletons",
            ),
            *(
                "store",
                "store_machines",
                "store_server",
                "supervision",
                "tensors",
                "testing",
                "tools",
                "top",
                "top_screen",
                "top_serve",
            ),
            *("agents", "early_agent", "live_output", "looking", "shells", "terminated", "timeline", "wheel"),
            *("timeouts", "torchrun", "via"),
        )
    ),
    *(
        f"faults/test_{name}.py"
        for name in (
            *("agents", "bad_messages", "cleaners", "descendants", "exhausted", "exposure", "failing_calls", "fuzzed"),
            "interrupts",
            *(
                "left_behind",
                "links",
                "load",
                "other_user",
                "other_user_joining",
                "resources",
                "reused_pids",
                "root_death",
                "slow_ranks",
                "stop",
                "store_faults",
            ),
            *("strangers", "unread", "worker_death", "worker_stalls"),
        )
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    """Run the slow tests, too, of files that are named, unless -m says otherwise."""
    if config.args_source is pytest.Config.ArgsSource.ARGS and config.option.markexpr == _USUAL:
        config.option.markexpr = "not nightly"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no tests that are left out because one version of Python is enough for them: that takes half a minute."""
    left_out = "not one_python" in config.getoption("markexpr") and _needs_one_python(collection_path)
    return True if left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that one version of Python is enough for."""
    for item in items:
        if _needs_one_python(item.path):
            item.add_marker(pytest.mark.one_python)


def _needs_one_python(path: Path) -> bool:
    return f"{path.relative_to(HERE).as_posix()}{'/' if path.is_dir() else ''}".startswith(ONE_PYTHON)


def _isolate() -> None:
    """Give this run directories of its own: it sees no other program of this user, and none sees it.

    In the environment, so that the programs that tests start are in there too. Paths of sockets have to be short.
    """
    base = Path(tempfile.gettempdir())
    scratch = Path(tempfile.mkdtemp(prefix="mt", dir=base if len(str(base)) < 30 else "/tmp"))
    pid = os.getpid()

    def remove() -> None:
        if os.getpid() == pid:  # not in a forked child
            shutil.rmtree(scratch, ignore_errors=True)

    atexit.register(remove)
    os.environ["MESHRT_RUNTIME_DIR"] = str(scratch / "r")
    os.environ["MESHRT_RUNS"] = str(scratch / "runs")
    os.environ["MESHRT_STRICT_HOOKS"] = "1"
    # See the file there. Python runs the first of this name only: that of `tests/hosts`, or of the machine, is needed.
    if importlib.util.find_spec("sitecustomize") is None:
        places = (str(HERE / "support" / "rank_side"), os.environ.get("PYTHONPATH"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    # Whoever wants no bytecode in the checkout gets none; but thousands of processes are not to compile the same files.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(scratch / "bytecode"))
        sys.dont_write_bytecode = False  # the workers that are about to be started would be told of it
    # A runner in the background, or under nohup, ignores signals; the programs that tests start would inherit that.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


_isolate()

# Times depend on the machine, so no profile has a deadline, or minds how long examples take to make; each test has the
# watchdog of pyproject.toml.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _UNTIMED, max_examples=50)
settings.register_profile("ci", _UNTIMED, max_examples=100, derandomize=True, print_blob=True, database=None)
settings.register_profile("nightly", _UNTIMED, max_examples=3000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "dev"))


@pytest.fixture(scope="module", autouse=True)
def one_program(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the tests of this module share a program: a marker of the module says so. It is ended behind them."""
    if request.node.get_closest_marker("one_program") is None:
        yield False
        return
    import meshrt
    from meshrt.testing.leaks import left_behind
    from tests.support.footprint import footprint

    _warm_up()
    before = footprint()
    meshrt.proc_mesh(hosts=2, name="first").stop()  # its agents are there from now on
    yield True
    meshrt.shutdown_context(0.5)
    _fail_for(left_behind(before, 10, footprint))


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest, one_program: bool) -> Iterator[None]:
    """End the program after the test; no descriptor, thread, process, socket file or segment may be left."""
    if request.path.relative_to(HERE).parts[0] not in CHECKED:
        yield
        _check_interrupts()
        return
    import meshrt
    from meshrt.mesh.program import start_root
    from meshrt.pytest_plugin import MeshesOfTest
    from meshrt.testing.leaks import left_behind
    from tests.support.footprint import footprint

    _warm_up()
    meshes = MeshesOfTest(start_root()) if one_program else None
    before = footprint()
    yield
    if meshes is None:
        meshrt.shutdown_context(0.5)
    else:
        meshes.finish(start_root())
    _fail_for(left_behind(before, 10, footprint, of_program=one_program))
    _check_interrupts()


def _warm_up() -> None:
    """Open what is kept for as long as the process lives."""
    import uvloop  # here, so that tests of other folders decide themselves what is loaded

    uvloop.new_event_loop().close()  # its library keeps one pipe
    ctypes.CFUNCTYPE(None)(int)  # and some builds of libffi a descriptor of themselves, from the first callback on


def _fail_for(left: list[str]) -> None:
    if left:
        from meshrt.testing.leaks import explained

        pytest.fail(f"the test has left these resources behind:\n{explained(left)}", pytrace=False)


def _check_interrupts() -> None:
    handler = signal.getsignal(signal.SIGINT)
    if type(getattr(handler, "__self__", None)).__name__ == "Shield":
        # A program that ends on another thread cannot give it back; it does what the default one does.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    elif handler is not signal.default_int_handler:
        pytest.fail("the test left behind: a handler of SIGINT", pytrace=False)
