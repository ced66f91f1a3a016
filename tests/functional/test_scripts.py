"""Scripts as people have them, which know nothing of meshrt: nothing differs below ``meshrt run``.

Each runs three times: as it is, below ``meshrt run`` in the same processes of the launcher, and by ``meshrt run -n 2``.
"""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scripts import SCRIPTS, Ended, Runs

_RUN = ["-m", "meshrt", "run"]
_TORCHRUN = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
#: A script and its words; FOLDER is a directory of the run.
CASES = {
    "ddp": ["ddp.py"],
    "sharded": ["fsdp2.py"],
    "tensor parallel": ["tensor_parallel.py"],
    "workers of a loader": ["loader.py"],
    "spawn": ["spawning.py"],
    "arguments": ["arguments.py", "a", "--lr", "3e-4", "-n", "7", "-m", "big", "--", "--help"],
    "help": ["arguments.py", "--help"],
    "usage error": ["arguments.py", "--lr", "x"],
    "a module": ["-m", "pkg.train", "--lr", "3", "-n", "4", "-m", "x"],
    "forks": ["forks.py"],
    "descriptors": ["descriptors.py", "FOLDER"],
    "surroundings": ["surroundings.py", "a", "--b=c"],
}
#: Those that load no torch and are short.
QUICK = ("usage error", "forks", "descriptors")
#: What is different with ``meshrt run -n``, as docs/spmd.md says.
NOT_BY_ITSELF = ("descriptors", "surroundings")
_SIGNALS = {str(signal.SIGRTMIN + 6), str(signal.SIGRTMIN + 7)}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with Runs(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("case", QUICK)
def test_a_script_is_as_it_is_alone(case: str, runs: Runs) -> None:
    """In processes that only have the variables of a launcher: with the exit status of each."""
    plain = runs.by_variables(CASES[case])
    joined = runs.by_variables([*_RUN, *CASES[case]])
    assert [each.told() for each in joined] == [each.told() for each in plain]
    if case not in NOT_BY_ITSELF:
        _same_by_itself(runs, case, plain, max(each.status for each in plain) > 0)


@_TORCHRUN
@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_a_script_is_as_below_torchrun_alone(case: str, runs: Runs) -> None:
    status, plain = runs.by_torchrun(CASES[case])
    below, joined = runs.by_torchrun([*_RUN, *CASES[case]])
    assert below == status
    if case == "surroundings":
        for one, other in zip(plain, joined, strict=True):
            _same_surroundings(json.loads(one.out), json.loads(other.out))
        return
    assert [each.told() for each in joined] == [each.told() for each in plain]
    if case not in NOT_BY_ITSELF:
        _same_by_itself(runs, case, plain, status > 0)


@_TORCHRUN
@pytest.mark.nightly
@pytest.mark.parametrize("code", [0, 3])
def test_a_script_saves_when_its_launcher_is_ended(code: int, runs: Runs) -> None:
    words = ["signals.py", "FOLDER", str(code)]
    status, plain = runs.by_torchrun(words, terminate=True)
    below, joined = runs.by_torchrun([*_RUN, *words], terminate=True)
    assert below == status
    assert [each.told() for each in joined] == [each.told() for each in plain]
    assert all(each.out.endswith("has saved, True\n") for each in joined)


@_TORCHRUN
@pytest.mark.nightly
def test_variables_are_those_of_torchrun(runs: Runs) -> None:
    """With ``meshrt run -n``: what docs/spmd.md names, and the mark of the program."""
    _, plain = runs.by_torchrun(CASES["surroundings"])
    own = runs.by_itself(CASES["surroundings"])
    first = min(map(json.loads, own.out.splitlines()), key=lambda facts: int(facts["variables"]["RANK"]))
    wanted, found = json.loads(plain[0].out)["variables"], first["variables"]
    values = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
    differ = {name for name in {*wanted, *found} - values if wanted.get(name) != found.get(name)}
    assert differ == {
        "MESHRT_RUN", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE",
    }  # fmt: skip


def _same_by_itself(runs: Runs, case: str, plain: list[Ended], fails: bool) -> None:
    own = runs.by_itself(CASES[case])
    assert own.status == int(fails), own.err
    assert own.lines() == sorted(line for each in plain for line in each.out.splitlines())
    if not fails:
        assert own.errors() == sorted(line for each in plain for line in each.errors())


def _same_surroundings(plain: dict[str, object], joined: dict[str, object]) -> None:
    given, found = plain.pop("variables"), joined.pop("variables")
    assert isinstance(given, dict) and isinstance(found, dict)
    files = [Path(each.pop("TORCHELASTIC_ERROR_FILE")).name for each in (given, found)]
    assert files == ["error.json", "error.children.json"]
    for name in "TORCHELASTIC_RUN_ID", "MASTER_PORT":  # of each run
        assert found.pop(name) and given.pop(name)
    assert found == given
    before, after = plain.pop("of a child"), joined.pop("of a child")
    assert isinstance(before, list) and isinstance(after, list) and {*after} == {*before}
    before, after = plain.pop("handlers"), joined.pop("handlers")
    assert isinstance(before, dict) and isinstance(after, dict)
    assert {number for number in before if before[number] != after[number]} == _SIGNALS
    # Exceptions of threads are reported.
    before, after = plain.pop("hooks"), joined.pop("hooks")
    assert isinstance(before, list) and isinstance(after, list) and before[:2] == after[:2]
    assert joined == plain


def test_all_scripts_are_run() -> None:
    files = {path.name for path in SCRIPTS.glob("*.py")}
    assert files == {words[0] for words in CASES.values() if words[0] != "-m"} | {"signals.py"}
