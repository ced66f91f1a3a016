"""Machines with the daemons of a launcher, which start ``meshrt launch`` on each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.machines import Machine, machines
from tests.support.waiting import wait_until

__all__ = ["EXAMPLE", "EXAMPLE_SAYS", "HOME", "RANKS", "TRAIN", "Launched", "fixtures", "launched"]

#: The script that is launched.
TRAIN = str(Path(__file__).with_name("train.py"))
#: The example of a script on several machines, and what it prints after 20 steps with a rank on each of two.
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "cluster.py")
EXAMPLE_SAYS = ["2 ranks on n1 n2", "weight 1.318 after 20 steps"]
#: The home of a user, the same directory on all machines.
HOME = "/tmp/shared/home"
#: What the script prints where the hosts are in the order of the machines.
RANKS = ["rank 0 is on n1", "rank 1 is on n1", "rank 2 is on n2", "rank 3 is on n2"]


class Launched:
    """Machines, and the programs that a test starts on them.

    Attributes:
        machines: In the order of their names.
        more: What a user has in the environment beside the usual.
    """

    def __init__(self, made: Sequence[Machine], more: dict[str, str]) -> None:
        self.machines = made
        self.more = more
        self.programs: list[subprocess.Popen[str]] = []
        self._daemons = {machine.name: set(machine.processes()) for machine in made}

    def start(self, *words: str, on: int = 0, **more: str) -> subprocess.Popen[str]:
        """Start a command of a user on a machine."""
        machine = self.machines[on]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = machine.environment(
            PATH=path, PYTHONUNBUFFERED="1", MESHRT_LOGS="fold=off", **{"HOME": HOME, **self.more, **more}
        )
        program: subprocess.Popen[str] = machine.start(
            *words,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )  # type: ignore[assignment]
        self.programs.append(program)
        return program

    def run(self, *words: str, on: int = 0, timeout: float = 90, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of a user to its end; what it printed is shown if the test fails."""
        program = self.start(*words, on=on, **more)
        try:
            out, err = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            print(f"---- not within {timeout} s: {' '.join(words)}; {self.left()}")
            self.end()
            out, err = program.communicate(timeout=20)
        print(f"---- {' '.join(words)}: exit status {program.returncode}\n{out}\n---- standard error\n{err}")
        return subprocess.CompletedProcess(words, program.returncode, out, err)

    def start_that_hangs(self, *words: str, on: int = 0) -> subprocess.Popen[str]:
        """Start a command with the script and "hang"; returns once all four ranks of it hang."""
        program = self.start(*words, on=on)
        assert program.stdout is not None
        if _hang(program.stdout):
            return program
        raise AssertionError(f"the program has ended before all ranks hung: {program.communicate(timeout=20)[1]}")

    def signal(self, name: str, number: int, on: int = 0) -> None:
        """Send a signal to all processes of a program on a machine, as a terminal does."""
        lines = self.machines[on].processes().items()
        found = [pid for pid, line in lines if name in (Path(word).name for word in line.split()[:2])]
        assert found, f"no process runs {name}"
        for pid in found:
            os.kill(pid, number)

    def shared(self, name: str) -> Path:
        """Return where the file ``/tmp/shared/NAME`` of the machines is for the test."""
        return self.machines[0].switch.shared / name

    def left(self) -> dict[str, list[str]]:
        """Return what runs on the machines beside the daemons: command lines by the name of the machine."""
        return {
            machine.name: found
            for machine in self.machines
            if (found := [line for pid, line in machine.processes().items() if pid not in self._daemons[machine.name]])
        }

    def wait_until_empty(self, seconds: float = 20) -> None:
        """Fail the test if anything is left that it has started."""
        try:
            wait_until(lambda: not self.left(), seconds)
        except AssertionError:
            raise AssertionError(f"processes are left after {seconds} s: {self.left()}") from None

    def clean(self) -> None:
        """End what a test has left, and fail it if there was anything."""
        try:
            self.wait_until_empty()
        finally:
            self.close()

    def close(self) -> None:
        """End what a test has left."""
        self.end()
        for program in self.programs:
            program.kill()
            program.communicate()
        self.programs.clear()

    def end(self) -> None:
        """Kill everything beside the daemons."""
        for machine in self.machines:
            for pid in set(machine.processes()) - self._daemons[machine.name]:
                with contextlib.suppress(ProcessLookupError):
                    machine.kill(pid)


def _hang(lines: Iterable[str]) -> bool:
    """Whether so many ranks say that they hang as the script has."""
    hanging = 0
    for line in lines:
        hanging += "hangs" in line
        if hanging == 4:
            return True
    return False


@contextlib.contextmanager
def launched(
    daemons: Callable[[Sequence[Machine]], contextlib.AbstractContextManager[None]] | None = None, **more: str
) -> Iterator[Launched]:
    """Two machines on which ``daemons`` run; ``more`` is in the environment of their user."""
    with machines(2) as made, daemons(made) if daemons else contextlib.nullcontext():
        done = made[0].run("mkdir", "-p", "-m", "700", HOME)
        assert done.returncode == 0, done.stderr
        yield Launched(made, more)


def fixtures(
    make: Callable[[], contextlib.AbstractContextManager[Launched]],
) -> tuple[Callable[..., object], Callable[..., object], Callable[..., object]]:
    """Return the fixtures of a module, for its names ``_cluster``, ``cluster`` and ``own_cluster``.

    The first is of the whole module, the second one the same for a test: nothing but daemons runs there before and
    after. The third is a cluster that the test may break.
    """

    @pytest.fixture(scope="module")
    def _cluster() -> Iterator[Launched]:
        with make() as made:
            yield made

    @pytest.fixture
    def cluster(_cluster: Launched) -> Iterator[Launched]:
        yield _cluster
        _cluster.clean()

    @pytest.fixture
    def own_cluster() -> Iterator[Launched]:
        with make() as made:
            yield made
            made.close()

    return _cluster, cluster, own_cluster
