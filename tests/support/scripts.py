"""Runs of a script of tests/functional/scripts on two ranks: by torchrun, by variables alone, by ``meshrt run -n``."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.programs import ROOT, environment
from tests.support.waiting import wait_until

__all__ = ["SCRIPTS", "Ended", "Runs"]

SCRIPTS = ROOT / "tests" / "functional" / "scripts"
_SECONDS = 300
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

#: What is said of a rank that does not answer: where many processes load torch at once.
_SILENT = re.compile(r"^meshrt: .* does not answer.*\n(?:stack .*\n(?:  .*\n)*)?", re.MULTILINE)
_OTHERS = re.compile(r"meshrt: |=====|[IWE]\d{4} ")


@dataclass
class Ended:
    """One rank that has ended, or all of them.

    Attributes:
        status: Of the process; 0 where a launcher keeps it to itself.
    """

    status: int
    out: str
    err: str

    def lines(self) -> list[str]:
        """Return the lines of its standard output; those of several ranks come in any order."""
        return sorted(self.out.splitlines())

    def told(self) -> tuple[int, list[str], list[str]]:
        """Return what of it has to be the same in two runs: status, lines of output, and of standard error."""
        return self.status, self.lines(), self.errors()

    def errors(self) -> list[str]:
        """Return the lines of standard error.

        Without those of meshrt, which end with its report, and warnings of torch, which have a time in them.
        """
        said = _SILENT.sub("", self.err.partition("\nmeshrt: FAILED")[0])
        return sorted(line for line in said.splitlines() if line and not _OTHERS.match(line))


class Runs:
    """Runs a script, each time in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._runtime = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def by_variables(self, words: Sequence[str]) -> list[Ended]:
        """Run it in two processes that have the variables of a launcher, and a pipe each."""
        folder = self._make_folder()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        given = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-u", *_placed(words, folder)]
        started = [self._start(command, RANK=rank, LOCAL_RANK=rank, **given) for rank in ("0", "1")]
        return [_ended(process) for process in started]

    def by_torchrun(self, words: Sequence[str], *, terminate: bool = False) -> tuple[int, list[Ended]]:
        """Run it by torchrun, which writes a file for each stream of each rank. Returns its status, and the ranks.

        Args:
            terminate: It is ended by SIGTERM once the script says that it trains.
        """
        folder = self._make_folder()
        logs = ["--log-dir", str(folder / "logs"), "--redirects", "3"]
        process = self._start([sys.executable, *_TORCHRUN, *logs, *_placed(words, folder)])
        if terminate:
            files = [folder / f"{rank}.trains" for rank in range(2)]
            wait_until(lambda: all(map(Path.exists, files)), _SECONDS, "both train")
            process.terminate()
        status = _ended(process).status
        return status, [Ended(0, *_streams(folder / "logs", rank)) for rank in range(2)]

    def by_itself(self, words: Sequence[str]) -> Ended:
        """Run it by ``meshrt run -n 2``."""
        folder = self._make_folder()
        return _ended(self._start([sys.executable, "-m", "meshrt", "run", "-n", "2", *_placed(words, folder)]))

    def _make_folder(self) -> Path:
        self._count += 1
        made = self._folder / str(self._count)
        made.mkdir()
        return made

    def _start(self, command: Sequence[str], **more: str) -> subprocess.Popen[str]:
        env = environment(
            MESHRT_RUNTIME_DIR=self._runtime, MESHRT_RUNS=str(self._folder / "runs"), OMP_NUM_THREADS="1", **more
        )
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=env, cwd=SCRIPTS, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
        self._stack.callback(_end, process)
        return process


def _placed(words: Sequence[str], folder: Path) -> Iterator[str]:
    return (word.replace("FOLDER", str(folder)) for word in words)


def _ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=_SECONDS)
    print(f"---- {process.args!r}: exit status {process.returncode}\n{out}\n---- standard error\n{err}")
    return Ended(process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def _streams(logs: Path, rank: int) -> list[str]:
    found = [next(iter(logs.rglob(f"{rank}/{name}.log"))).read_text() for name in ("stdout", "stderr")]
    print(f"---- rank {rank}\n{found[0]}\n---- standard error\n{found[1]}")
    return found
