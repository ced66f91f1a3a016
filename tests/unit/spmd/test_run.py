"""Which way a script is run, and with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshrt.failure import run as alone
from meshrt.spmd import launched, local
from meshrt.spmd import run as command

TORCHRUN = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was chosen, and what it was given."""
    found: list[object] = []
    monkeypatch.setattr(launched, "run", lambda place, words, mesh: found.extend(["launched", place.rank, words, mesh]))
    monkeypatch.setattr(local, "run", lambda words, sizes, restarts: found.extend(["local", words, sizes, restarts]))
    monkeypatch.setattr(alone, "run_alone", lambda words: found.extend(["alone", words]))
    return found


def run(**given: Any) -> None:
    usual = {"words": ["train.py", "--lr", "1"], "nproc_per_node": None, "mesh": "", "max_restarts": 0}
    command.show({**usual, "local_rank": "", **given})


def test_below_a_launcher_it_is_one_of_its_ranks(way: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    run(mesh="dp=2")
    assert way == ["launched", 1, ["train.py", "--lr", "1"], "dp=2"]


def test_a_number_of_ranks_says_more_than_a_launcher(way: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    run(nproc_per_node=4, max_restarts=2)
    assert way == ["local", ["train.py", "--lr", "1"], {"hosts": 1, "gpus": 4}, 2]


def test_a_job_of_another_form_runs_all_the_same(
    way: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**TORCHRUN, "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    run(mesh="dp=3")
    assert way == ["alone", ["train.py", "--lr", "1"]]
    assert "this process is not visible to meshrt commands: torchrun: 3 ranks" in capsys.readouterr().err


def test_a_script_alone_is_the_only_rank(way: list[object]) -> None:
    run()
    assert way == ["launched", 0, ["train.py", "--lr", "1"], ""]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os\nfrom meshrt import proc_mesh\n", "alone"),
        ("if True:\n    import meshrt as m\n", "alone"),
        ("import meshrt_tools  # not meshrt\n", "launched"),
        ("print('import meshrt')\n", "launched"),
    ],
)
def test_a_script_that_may_have_meshes_is_a_program_of_its_own(
    text: str, expected: str, way: list[object], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(text)
    run(words=[str(tmp_path / "train.py")])
    assert way[0] == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--lr", "1"], ["train.py", "--local_rank=3", "--lr", "1"]),
        (["-m", "pkg.train", "x"], ["-m", "pkg.train", "--local_rank=3", "x"]),
    ],
)
def test_what_deepspeed_says_comes_first(way: list[object], words: list[str], expected: list[str]) -> None:
    run(words=words, local_rank="3")
    assert way == ["launched", 0, expected, ""]
