"""What a program makes on its machine first, and what is left of that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from meshrt.errors import UsageError
from meshrt.mesh.run import Limits, Run
from meshrt.transport import directories


@pytest.fixture
def bases(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders of runtime directories and of run directories."""
    base = tmp_path_factory.mktemp("b")
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(base / "r"))
    monkeypatch.setenv("MESHRT_RUNS", str(base / "runs"))
    return base / "r", base / "runs"


def left(bases: tuple[Path, Path]) -> list[str]:
    return [
        entry.name for base in bases if base.exists() for entry in base.rglob("*") if not entry.name.endswith("lock")
    ]


def make() -> Run:
    return Run(Limits.from_environment())


def test_it_has_what_the_program_needs_and_takes_it_away(bases: tuple[Path, Path]) -> None:
    run = make()
    assert run.is_here and run.directory == str(run.runtime_directory)
    assert run.runtime_directory.name == f"p-{run.run_id}" and run.run_directory.name.endswith(run.run_id)
    assert run.pipe.path.is_fifo()
    run.close()
    assert left(bases) == []


def test_what_a_person_reads_afterwards_is_kept(bases: tuple[Path, Path]) -> None:
    run = make()
    (run.run_directory / "m.0.log").write_text("hello\n")
    run.close()
    assert not run.runtime_directory.exists() and "m.0.log" in left(bases)


def test_what_fails_half_way_leaves_nothing(bases: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> NoReturn:
        raise OSError("no descriptor is free")

    before = psutil.Process().num_fds()
    monkeypatch.setattr(directories, "create_run", refuse)
    with pytest.raises(OSError, match="no descriptor"):
        make()
    assert left(bases) == [] and psutil.Process().num_fds() == before


def test_a_run_whose_root_could_not_be_made_leaves_nothing(bases: tuple[Path, Path]) -> None:
    before = psutil.Process().num_fds()
    run = make()
    (run.run_directory / "note").touch()
    run.discard()
    assert left(bases) == [] and psutil.Process().num_fds() == before


@pytest.mark.parametrize("variable", ["MESHRT_STORE_LIMIT", "MESHRT_LOGS_LIMIT", "MESHRT_RUNS_LIMIT"])
def test_a_limit_that_is_no_size_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "much")
    with pytest.raises(UsageError, match=variable):
        Limits.from_environment()


def test_a_fork_is_another_process(bases: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run = make()
    monkeypatch.setattr(os, "getpid", lambda: run.pid + 1)
    assert not run.is_here
    monkeypatch.undo()
    run.close()
