"""``pytest --meshrt-pm``, through a pseudo-terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.debug.pty_harness import Screen, screen
from tests.support.programs import run_python

TESTS = """
from meshrt import Actor, endpoint, testing

class Trainer(Actor):
    @endpoint
    def step(self, loss):
        twice = loss * 2
        return self.check(twice)

    def check(self, value):
        if value > 3:
            raise ValueError(f"loss is {value}")
        return value

def test_fails(meshrt_mesh):
    print("printed by the test")
    trainers = meshrt_mesh(gpus=2).spawn("trainer", Trainer)
    trainers.step.call(1).get(20)
    trainers.slice(gpus=1).step.call_one(2).get(20)

def test_fails_without_ranks():
    assert 0

def test_is_killed(meshrt_mesh):
    mesh = meshrt_mesh(gpus=2, faults=[testing.kill(0, at=testing.call("step"))])
    mesh.spawn("trainer", Trainer).step.call(1).get(20)

def test_local():
    with testing.local(Trainer) as trainer:
        trainer.step.call_one(7).get(20)

def test_expects(meshrt_mesh):
    try:
        meshrt_mesh(gpus=1).spawn("trainer", Trainer).step.call(2).get(20)
    except ValueError:
        pass
"""
OPTIONS = ("-p", "no:meshrt", "-p", "meshrt.pytest_plugin", "-p", "no:cacheprovider", "--meshrt-pm", "test_it.py")
OPENED = "meshrt post-mortem: `h` lists the commands"


@contextmanager
def run_of_tests(folder: Path, *options: str) -> Iterator[Screen]:
    (folder / "test_it.py").write_text(TESTS)
    with screen("-m", "pytest", "-q", *OPTIONS, *options, cwd=folder) as me:
        yield me


@pytest.mark.slow
def test_a_prompt_opens_on_the_root_cause_of_each_test_that_fails_by_a_rank(tmp_path: Path) -> None:
    with run_of_tests(tmp_path) as me:
        shown = me.sees("printed by the test", "ROOT CAUSE", "trainers.slice(gpus=1)", OPENED, "(trainer 1 gpus=1)")
        assert shown.count("ValueError: loss is 4") > 1
        me.types("p value")
        me.sees("\n4", "(trainer 1")
        me.types("u")
        me.sees("return self.check(twice)", "(trainer 1")
        me.types("twice")
        me.sees("\n4", "(trainer 1")
        with screen("-m", "meshrt.debug", "-c", "names") as other:
            other.sees("trainer")  # the ranks live
            other.ends()
        me.types("q")
        me.sees("kill of rank 0 at call 1 of step(): has happened", OPENED, "was killed by SIGKILL", "(trainer 0")
        me.types("q")
        me.sees(OPENED, "ValueError: loss is 14", "(trainer 0)")
        me.child.send("\x04")
        said = me.ends()
        assert "4 failed, 1 passed" in said
        assert me.code == 1


def test_it_is_refused_where_nobody_types(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert 0\n")
    for options, why in {
        (): "--meshrt-pm needs a terminal as standard input and output",
        ("-n", "2"): "--meshrt-pm needs a single process at a terminal: add -n 0 (pytest-xdist)",
    }.items():
        done = run_python("-m", "pytest", "-q", *OPTIONS, *options, cwd=tmp_path)
        assert done.returncode == 4 and why in done.stderr and "failed" not in done.stdout


def test_s_and_the_option_together(tmp_path: Path) -> None:
    with run_of_tests(tmp_path, "-s", "-x") as me:
        me.sees("printed by the test", OPENED, "(trainer 1 gpus=1)")
        me.types("q")
        assert "1 failed" in me.ends()
