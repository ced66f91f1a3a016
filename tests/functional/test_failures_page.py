"""docs/failures.md shows what the programs of examples/failures.py print."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.programs import ROOT, environment, run_python

PAGE = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
SHOWN = {
    match[1]: match[2]
    for match in re.finditer(r"^```\n\$ python examples/failures\.py (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}

#: What is another one in every run.
VARIABLE = (
    (re.escape(str(ROOT)) + "/", ""),
    (r" on [\w.-]+, pid \d+", " on HOST, pid PID"),
    (r"\d+\.\d s after its start", "T s after its start"),
    (r"[\d.]+ (us|ms|s) after the root cause", "T after the root cause"),
    (r"blocked (< 1|\d+) s", "blocked T s"),
    (r"stacks (at that time|T after the root cause)", "stacks"),  # a busy machine takes a moment to ask them
    (r"\d\d:\d\d:\d\d\.\d{3}", "CLOCK"),
    (r"postmortem [0-9a-f]{8}", "postmortem RUN"),
)

#: Python runs this when an agent starts: rank 13 of `crash`, which is to be the first to fail, does so when all others
#: sleep. On a loaded machine some have not come so far by themselves.
SITECUSTOMIZE = """
import os, sys, time
if any(word.endswith("agent_main.py") for word in sys.orig_argv[:3]):
    import meshrt, psutil
    known = meshrt.current_rank
    def sleeps(rank):
        with open(f"/proc/{rank.pid}/wchan") as file:
            place = file.read()
        return "nanosleep" in place or place == "0"  # some kernels do not say it
    def current_rank():
        while known().rank == 13 and sum(map(sleeps, psutil.Process().parent().children())) < 15:
            time.sleep(0.01)
        return known()
    meshrt.current_rank = sys.modules[known.__module__].current_rank = current_rank
"""


def masked(text: str) -> str:
    for pattern, stand_in in VARIABLE:
        text = re.sub(pattern, stand_in, text)
    return "\n".join(line.rstrip() for line in text.splitlines() if not re.fullmatch(r" +[~^]+ *", line))


def report(text: str) -> str:
    return masked(text[text.index("=====") :])


def test_every_program_is_shown() -> None:
    assert set(SHOWN) == {"crash", "store", "unclear"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crash", "store", "unclear"])
def test_the_report_is_the_one_that_is_printed(name: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    done = run_python(str(ROOT / "examples" / "failures.py"), name, env=env)
    assert done.returncode == 1
    assert report(done.stderr) == report(SHOWN[name])


def test_the_script_is_told_with_its_own_lines() -> None:
    done = run_python(str(ROOT / "examples" / "failures.py"), "crash")
    assert masked(done.stderr) == masked(SHOWN["crash"])


def test_another_word_is_refused() -> None:
    done = run_python(str(ROOT / "examples" / "failures.py"), "nosuch")
    assert done.returncode == 1 and "usage: python examples/failures.py crash|store|unclear" in done.stderr
