"""System calls fail in the script, the agent and the ranks: the work is done, or an error names what has failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.callfaults import environment_with, library
from tests.support.programs import environment

PROGRAM = "tests.faults.failing_calls"
JOINING = "tests.faults.failing_joins"
#: What may fail while processes join.
JOINS = ("first joining", "second joining", "agent")
#: What a cell may be about; "new" ranks are those that start meanwhile as well as those that are there.
PROCESSES = ("root", "agent", "new rank")
#: What an agent calls as it begins.
BEGINS = (
    "accept4,bind,connect,epoll_create1,epoll_ctl,eventfd,listen,memfd_create,open64,pipe2,pthread_create,socketpair"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library."""
    return library(tmp_path_factory.mktemp("library"))


def cells(
    built: Path, folder: Path, process: str, most: int, functions: str = "", program: str = PROGRAM
) -> list[dict[str, Any]]:
    """Run the program, and find nothing wrong with its cells; returns them."""
    output = folder / "output"
    read_end, write_end = os.pipe()
    with open(output, "wb") as out, os.fdopen(read_end) as told:
        running = subprocess.Popen(
            [sys.executable, "-m", program, str(folder / "faults"), str(output), process, str(most), functions],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=[write_end],
            env=environment(TELL=str(write_end), MESHRT_STORE_LIMIT="8MiB", **environment_with(built, folder)),
            start_new_session=True,
        )
        os.close(write_end)
        try:
            messages = [json.loads(line) for line in told]
            status = running.wait(20)
        finally:
            running.kill()
            running.wait()
    print(output.read_text(errors="replace")[-6000:])
    assert status == 0, f"ended with {status} in {messages[-1:]}"
    assert "end" in messages[-1], messages[-1]
    found = [message["cell"] for message in messages if "cell" in message]
    wrong = [cell for cell in found if cell["wrong"]]
    assert not wrong, "\n".join("{function} {error} {nth}: {wrong}".format_map(cell) for cell in wrong)
    return found


@pytest.mark.slow
@pytest.mark.row("O8")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("process", PROCESSES)
def test_a_call_fails(process: str, built: Path, tmp_path: Path) -> None:
    """The first call of each function, and the last one of a round of work; each error that it can give."""
    found = cells(built, tmp_path, process, 2)
    assert sum(cell["met"] for cell in found) > len(found) // 3  # on a loaded machine it makes fewer calls


@pytest.mark.slow
@pytest.mark.row("O8")
@pytest.mark.timeout(300)
def test_a_call_fails_while_a_program_begins(built: Path, tmp_path: Path) -> None:
    """The script says so, leaves nothing, and begins again."""
    found = cells(built, tmp_path, "new root", 2, "epoll_create1,eventfd,mkdir,pipe2,socketpair,vfork")
    assert sum(cell["met"] for cell in found) > len(found) // 3  # on a loaded machine it makes fewer calls


@pytest.mark.slow
@pytest.mark.row("O8")
@pytest.mark.timeout(600)
def test_a_call_fails_while_an_agent_begins(built: Path, tmp_path: Path) -> None:
    """The script says which one, leaves nothing, and begins again."""
    assert cells(built, tmp_path, "new agent", 2, BEGINS)


@pytest.mark.slow
@pytest.mark.row("O8")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("process", ["root", "agent"])
def test_a_call_fails_while_a_program_ends(process: str, built: Path, tmp_path: Path) -> None:
    """It ends, leaves nothing, and the next one begins."""
    assert cells(built, tmp_path, f"ending {process}", 1)


@pytest.mark.slow
@pytest.mark.row("O8")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("process", JOINS)
def test_a_call_fails_while_processes_join(process: str, built: Path, tmp_path: Path) -> None:
    """One that has not joined says why, and goes on; nothing is left."""
    assert cells(built, tmp_path, process, 1, "memfd_create,epoll_ctl,pthread_create,recvmsg", JOINING)


@pytest.mark.nightly
@pytest.mark.row("O8")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("process", JOINS)
def test_any_call_fails_while_processes_join(process: str, built: Path, tmp_path: Path) -> None:
    """Up to 5 calls of each function."""
    assert cells(built, tmp_path, process, 5, program=JOINING)


@pytest.mark.nightly
@pytest.mark.row("O8")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("process", PROCESSES)
def test_any_call_fails(process: str, built: Path, tmp_path: Path) -> None:
    """Up to 40 calls of each function, spread over a round of work."""
    assert cells(built, tmp_path, process, 40)
