"""Changed examples of everything that comes from outside, from fixed seeds; an hour more of them each night."""

from __future__ import annotations

import datetime
import importlib.util
import re
import subprocess
import sys

import pytest

from tests.fuzz.examples import examples_of
from tests.fuzz.mutating import Mutator
from tests.fuzz.running import BAIT, Found, Target, attempt, attempts, search
from tests.fuzz.targets import FOUND, TARGETS
from tests.fuzz.wire import CATALOGUES
from tests.support.programs import ROOT

#: Each is a test of its own, so that workers share them: a seed, and which part of the inputs is tried.
SEEDS = [
    (0, 10),
    pytest.param(0, 1, marks=pytest.mark.slow),
    *(pytest.param(seed, 1, marks=pytest.mark.nightly) for seed in range(1, 4)),
]
#: A catalogue that a module makes.
_CATALOGUE = re.compile(r"^(\w+): Catalogue\[", re.MULTILINE)
#: Seconds of all targets together, each night.
NIGHT = 3600


@pytest.mark.parametrize(("seed", "part"), SEEDS)
@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_understood_or_refused(name: str, seed: int, part: int) -> None:
    attempts(TARGETS[name], seed, TARGETS[name].count // part)


@pytest.mark.parametrize(("name", "data"), FOUND, ids=lambda each: each if isinstance(each, str) else "input")
def test_what_was_found_before(name: str, data: bytes) -> None:
    attempt(TARGETS[name], data)


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT)
@pytest.mark.parametrize("name", TARGETS)
def test_a_search_that_is_led_by_what_it_reaches(name: str) -> None:
    seconds, seed = NIGHT // len(TARGETS), datetime.date.today().toordinal()
    print("seed", seed)
    if importlib.util.find_spec("atheris") is None:
        search(TARGETS[name], seconds, seed)
    else:
        subprocess.run([sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), str(seed)], check=True)


def test_every_catalogue_has_examples() -> None:
    """Of each message of all that the package has: none is forgotten that is new."""
    made = [name for path in (ROOT / "meshrt").rglob("*.py") for name in _CATALOGUE.findall(path.read_text("utf-8"))]
    assert len(made) == len(CATALOGUES), made
    for catalogue in CATALOGUES:
        assert examples_of(catalogue)


@pytest.mark.slow
def test_a_search_that_is_led_by_atheris() -> None:
    pytest.importorskip("atheris", reason="not installed: atheris (pip install --group fuzz)")
    subprocess.run([sys.executable, "-m", "tests.fuzz.guided", "control", "3", "1"], check=True, timeout=120)


def looks(data: bytes) -> None:
    """Something with a fault deep inside."""
    if data[:1] == b"a" and data[1:2] == b"b" and data[2:3] == b"c":
        raise KeyError(data)


def test_a_fault_is_found_and_its_input_named() -> None:
    target = Target("looks", looks, lambda: [b"ab", b"xyz", b"c"], (ValueError,))
    with pytest.raises(Found, match="looks: KeyError") as found:
        attempts(target, 0, 5000)
    assert "tests.fuzz looks --input 6162" in found.value.__notes__[0]
    with pytest.raises(Found):
        search(target, 60, 0)


def test_who_unpickles_is_found() -> None:
    import pickle

    target = Target("unpickles", lambda data: pickle.loads(data), lambda: [BAIT])
    with pytest.raises(Found, match="was unpickled"):
        attempt(target, BAIT)
    del sys.modules["tests.fuzz.bait"]


def test_changes_are_the_same_for_the_same_seed() -> None:
    made = [
        [Mutator(seed, [b"\x81\xa1t\xa2ok", b"abc"], form).next() for seed in range(50)] for form in ("msgpack", "") * 2
    ]
    assert made[0] == made[2] and made[1] == made[3] and made[0] != made[1]
    assert len(set(made[0])) > 10
