"""What can be seen and reached from outside: no port, private directories, no secret, no other user."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from meshrt import ActorMesh, proc_mesh
from meshrt.transport.process import current_runtime
from tests.faults.actors import Victim
from tests.faults.watch import LONG, descendants
from tests.support.programs import ROOT, environment

pytestmark = pytest.mark.one_program


@pytest.fixture
def victims() -> ActorMesh[Victim]:
    return proc_mesh(n=2).spawn("victim", Victim).get(LONG)


def test_no_process_of_the_program_listens_on_the_network(victims: ActorMesh[Victim]) -> None:
    victims.echo.call(1).get(LONG)
    listening = set()
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        with contextlib.suppress(FileNotFoundError):
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            listening |= {line.split()[9] for line in lines}
    for pid in [os.getpid(), *descendants(os.getpid())]:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(path)
                assert name.removeprefix("socket:[").removesuffix("]") not in listening, (pid, name)
    abstract = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if " @" in line]
    assert not [name for name in abstract if "meshrt" in name]


def test_the_directory_is_private_and_holds_all_sockets(victims: ActorMesh[Victim]) -> None:
    victims.echo.call(1).get(LONG)
    directory = Path(current_runtime().directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.parent.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((directory / "tools.token").stat().st_mode) == 0o600
    bound = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "/" in line]
    mine = [path for path in bound if path.startswith(str(directory.parent))]
    assert {os.path.dirname(path) for path in mine} == {str(directory)}


def test_the_secret_is_nowhere_to_be_read(victims: ActorMesh[Victim]) -> None:
    """Not in command lines, environments, files, nor in what is printed of the objects that hold it."""
    victims.echo.call(1).get(LONG)
    runtime = current_runtime()
    needles = [runtime.secret, runtime.secret.hex().encode(), repr(bytes(runtime.secret))[2:-1].encode()]
    places: list[bytes] = []
    for pid in [os.getpid(), *descendants(os.getpid())]:
        places += [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    for base in (os.environ["MESHRT_RUNTIME_DIR"], os.environ["MESHRT_RUNS"]):
        places += [path.read_bytes() for path in Path(base).rglob("*") if path.is_file()]
    places += [repr(value).encode() for value in (runtime, victims, vars(victims), runtime.driver)]
    places.append(str(victims.slice(n=0).apply.call_one(environment_of_rank).get(LONG)).encode())
    assert not [place[:200] for place in places for needle in needles if needle in place]


def environment_of_rank() -> dict[str, str]:
    return dict(os.environ)


@pytest.mark.parametrize("trouble", ["is open to other users (mode 777)", "is not a directory (or a link to one)"])
def test_a_directory_that_others_may_touch_is_refused(trouble: str, tmp_path: Path) -> None:
    base = tmp_path / "r"
    if "mode" in trouble:
        base.mkdir(mode=0o777)
        base.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        base.symlink_to(tmp_path / "elsewhere")
    command = [sys.executable, "-c", "from meshrt import proc_mesh; proc_mesh(n=1)"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
        cwd=ROOT,
        env=environment(MESHRT_RUNTIME_DIR=str(base)),
    )
    assert done.returncode == 1 and f"{base} {trouble}" in done.stderr.splitlines()[-1], done.stderr
