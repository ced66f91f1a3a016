"""Limits of the machine: floods of output, full disks, closed and missing descriptors."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt import ActorError, ActorMesh, LinkLost, ProcessDied, proc_mesh
from tests.faults.actors import Victim
from tests.faults.watch import LONG, Program, agents, is_alive
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

HEAD = """
    victims = proc_mesh(n=2).spawn("victim", Victim).get(20)
"""


@pytest.fixture
def victims() -> ActorMesh[Victim]:
    return proc_mesh(n=2).spawn("victim", Victim).get(LONG)


FLOODS = {
    "os.write": "import os\nfor _ in range(1600):\n    os.write(1, b'x' * 65536)",
    "one print": "print('x' * 100_000_000, end='')",
    "many prints": "for _ in range(100_000):\n    print('x' * 1000, end='')",
    "binary": "import os\nfor _ in range(400):\n    os.write(1, bytes(range(256)) * 256)",
    "lines of emoji": "for _ in range(3000):\n    print('\\N{PILE OF POO}' * 4000)",
    "to both": "import sys\nfor _ in range(50_000):\n    print('o' * 300)\n    print('e' * 300, file=sys.stderr)",
    "empty lines": "print('\\n' * 5_000_000)",
}
LONG_FLOODS = ("empty lines", "binary", "many prints")


@pytest.mark.slow
@pytest.mark.row("O1")
@pytest.mark.parametrize(
    "what", [pytest.param(each, marks=pytest.mark.nightly) if each in LONG_FLOODS else each for each in FLOODS]
)
def test_a_flood_of_output(what: str, tmp_path: Path) -> None:
    """The call ends, the agent lives, and neither it nor the script holds the flood in memory."""
    script = f"""
    flood = {FLOODS[what]!r}
    victims.slice(n=0).apply.call_one(exec, flood).get(60)
    def peak(pid):
        return next(int(line.split()[1]) for line in open(f"/proc/{{pid}}/status") if line.startswith("VmHWM"))
    from tests.faults.watch import agents
    tell(values=victims.echo.call(5).get(20).values(), memory=[peak(os.getpid()), *map(peak, agents())])
    """
    with Program(HEAD + script, tmp_path) as program:
        assert program.told("values", 80) == [5, 5]
        assert len(program.told("memory")) == 2
        assert max(program.told("memory")) < 250 << 10  # KiB
        assert program.ends() == 0
        assert len(program.output) > 1000


@pytest.mark.row("O1")
def test_a_flood_before_a_death(tmp_path: Path) -> None:
    """The error carries the end of it, not all of it, and the host lives."""
    victims = proc_mesh(n=2).spawn("victim", Victim)
    flood = "import os\nfor _ in range(400):\n    os.write(2, b'\\xff' * 16383 + b'\\n')\nos._exit(1)"
    with pytest.raises(ProcessDied) as caught:
        victims.slice(n=0).apply.call_one(exec, flood).get(LONG)
    assert 0 < sum(map(len, caught.value.log_tail)) <= 1 << 17
    assert victims.slice(n=1).echo.call_one(1).get(LONG) == 1


HUGE = {
    "message": "raise ValueError('x' * 10_000_000)",
    "emoji": "raise ValueError('\\N{PILE OF POO}' * 3_000_000)",
    "chain": "e = None\nfor _ in range(15):\n    n = ValueError('x' * 300_000)\n    n.__cause__, e = e, n\nraise e",
    "notes": "e = ValueError('m')\nfor _ in range(2000):\n    e.add_note('n' * 10_000)\nraise e",
    "odd": "e = ValueError('\\udcff')\ne.add_note('\\udcff')\nraise e from LookupError('\\ud800')",
    "group": "raise ExceptionGroup('g', [ValueError('x' * 100_000) for _ in range(100)])",
}


@pytest.mark.parametrize("what", HUGE)
@pytest.mark.parametrize("way", ["call", "broadcast", "init"])
def test_an_enormous_exception(what: str, way: str, victims: ActorMesh[Victim]) -> None:
    """It arrives, cut; also where it has to go through the control tree."""
    before = agents()
    if way == "broadcast":
        victims.apply.broadcast(exec, HUGE[what])
    else:
        with pytest.raises(ActorError) as caught:
            victims.apply.call(exec, HUGE[what]).get(LONG)
        assert len(str(caught.value)) < 10 << 20
        assert ("Group" if what == "group" else "ValueError") in caught.value.remote.type
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    assert agents() == before and all(map(is_alive, before))


@pytest.mark.row("O2")
@pytest.mark.parametrize(("low", "high"), [(3, 4096), (0, 3), (0, 4096)])
def test_user_code_closes_descriptors(low: int, high: int, victims: ActorMesh[Victim]) -> None:
    """Its own output, and the runtime's: the rank is lost in the second case, and nobody else."""
    first = victims.slice(n=0)
    pid = first.pid.call_one().get(LONG)
    begin = time.monotonic()
    error = first.close_range.call_one(low, high).exception(LONG)
    assert time.monotonic() - begin < 5
    if high > 3:
        assert isinstance(error, ProcessDied | LinkLost), error
        assert f"pid {pid}" in str(error)
    else:
        assert first.echo.call_one(1).get(LONG) == 1
    assert victims.slice(n=1).echo.call_one(1).get(LONG) == 1


def test_user_code_writes_into_the_runtimes_descriptors(victims: ActorMesh[Victim]) -> None:
    """Garbage on the control link and on the data links costs that rank only."""
    first = victims.slice(n=0)
    error = first.apply.call_one(write_everywhere).exception(LONG)
    assert isinstance(error, ProcessDied | LinkLost | ActorError), error
    assert victims.slice(n=1).echo.call_one(1).get(LONG) == 1
    assert len(agents()) == 1


def write_everywhere() -> None:
    import contextlib
    import os

    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), b"\xff" * 4096)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group of 400 MiB, of either version of the interface; whoever is to be in it enters by itself."""
    name = f"meshrt-test-{os.getpid()}"
    version_1 = Path("/sys/fs/cgroup/memory") / name, "memory.limit_in_bytes"
    version_2 = Path("/sys/fs/cgroup") / name, "memory.max"
    group, limit = version_1 if version_1[0].parent.exists() else version_2
    try:
        group.mkdir()
    except OSError:
        pytest.skip("making a control group needs root")
    try:
        try:
            (group / limit).write_text(str(400 << 20))
        except OSError:
            pytest.skip("no limit of memory can be set on a control group here")
        yield group
        wait_until(lambda: not (group / "cgroup.procs").read_text(), LONG, "the end of everything in the group")
    finally:
        group.rmdir()


@pytest.mark.row("P15")
def test_a_rank_that_is_killed_for_want_of_memory(small_memory: Path, tmp_path: Path) -> None:
    """The error says so; a kill that is none of the kernel's is not put down to it.

    The kernel may kill a second process while the memory of the first one is still being freed: the one that fills the
    memory is the only one that it can take.
    """
    script = f"""
    open({str(small_memory / "cgroup.procs")!r}, "w").write(str(os.getpid()))
    open("/proc/self/oom_score_adj", "w").write("-1000")
    victims = proc_mesh(n=3).spawn("victim", Victim).get(20)
    def died(call):
        error = call.exception(20)
        return [type(error).__name__, error.signal, error.rank, str(error)]
    fill = "open('/proc/self/oom_score_adj', 'w').write('0')\\nkept = []\\nwhile True: kept.append(b'x' * (1 << 20))"
    tell(first=died(victims.slice(n=0).apply.call_one(exec, fill)))
    tell(second=died(victims.slice(n=1).die.call_one("sigkill")))
    tell(third=victims.slice(n=2).echo.call_one(1).get(20))
    """
    with Program(script, tmp_path) as program:
        *facts, text = program.told("first")
        assert facts == ["ProcessDied", signal.SIGKILL, 0]
        assert "was killed by SIGKILL (out of memory: the kernel's oom_kill counter" in text
        *facts, text = program.told("second")
        assert facts == ["ProcessDied", signal.SIGKILL, 1] and "memory" not in text
        assert program.told("third") == 1
        assert program.ends() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


WRITE_MUCH = """
    victims.apply.call(exec, "for _ in range(3000): print('x' * 300)").get(30)
    tell(values=victims.echo.call(5).get(20).values())
"""


@pytest.mark.row("O3")
def test_a_full_disk_costs_the_log_files_only(small_disk: Path, tmp_path: Path) -> None:
    """The output still reaches the terminal; one warning for each rank."""
    with Program(
        HEAD + WRITE_MUCH, tmp_path, env={"MESHRT_RUNS": str(small_disk), "MESHRT_LOGS": "fold=off"}
    ) as program:
        assert program.told("values") == [5, 5]
        assert program.ends() == 0
        assert 1 <= program.output.count("is no longer saved") <= 2
        assert program.output.count("x" * 300) == 6000


@pytest.mark.row("O3")
def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    limit = "import resource\n    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    with Program(f"    {limit}\n{HEAD}{WRITE_MUCH}", tmp_path) as program:
        # The output of this program is a file, too.
        assert program.told("values") == [5, 5]
        assert program.ends() in (0, 120)


@pytest.mark.row("O3")
def test_a_disk_that_is_full_from_the_start(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "full").write_bytes(b"x" * (256 << 10))
    with Program(HEAD + WRITE_MUCH, tmp_path, env={"MESHRT_RUNS": str(small_disk)}) as program:
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


@pytest.mark.slow
@pytest.mark.row("O5")
@pytest.mark.parametrize("limit", [64, 128, 256])
def test_few_descriptors(limit: int, tmp_path: Path) -> None:
    """A mesh that does not fit is refused with a count; the one that runs does not notice."""
    script = f"""
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
    errors, meshes = [], []
    for size in (1, 2, 4, 8, 16, 32, 64, 128):
        try:
            mesh = proc_mesh(n=size).spawn("victim", Victim).get(20)
            meshes.append(mesh)
        except MeshError as error:
            errors.append([size, type(error).__name__, str(error)])
    tell(errors=errors, sizes=[len(mesh) for mesh in meshes])
    tell(answers=[len(mesh.echo.call(1).get(20)) for mesh in meshes])
    """
    with Program(script, tmp_path) as program:
        errors, sizes = program.told("errors"), program.told("sizes")
        assert program.told("answers") == sizes
        assert errors and {name for _, name, _ in errors} == {"SpawnError"}
        assert all("open files" in text and str(limit) in text for _, _, text in errors), errors
        assert bool(sizes) == (limit > 64)
        assert program.ends() == 0


@pytest.mark.row("O5")
def test_the_script_has_used_up_its_descriptors() -> None:
    """A call on an open link needs none; what needs one says so instead of hanging."""
    victims = proc_mesh(n=2).spawn("victim", Victim).get(LONG)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    taken = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        assert victims.echo.call(1).get(LONG).values() == [1, 1]
        late = proc_mesh(n=1).spawn("late", Victim).pid.call()
        error = late.exception(LONG)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert error is None or isinstance(error, LinkLost), error
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    assert len(proc_mesh(n=1).spawn("late", Victim).pid.call().get(LONG)) == 1


@pytest.mark.slow
def test_python_finds_the_same_limits() -> None:
    """The ranks inherit the limits of the script, raised to what is allowed."""
    limits = proc_mesh(n=1).spawn("victim", Victim).apply.call_one(resource.getrlimit, resource.RLIMIT_NOFILE).get(LONG)
    assert limits[1] == resource.getrlimit(resource.RLIMIT_NOFILE)[1] and sys.maxsize > limits[0] > 0
