"""The bar at a real terminal: it is below what is written, and nothing of it stays."""

from __future__ import annotations

import sys
from pathlib import Path
from runpy import run_path

import pytest

pytest.importorskip("pyte", reason="pyte is not installed (pip install --group test)")

from tests.support.emulator import SECONDS, Emulator, emulated
from tests.support.programs import ROOT
from tests.support.waiting import wait_until

PROGRAM = """
import os, sys, time
from meshrt.mesh.terminal import Terminal

terminal = Terminal()
for done in range(1, 16):
    terminal.progress("mesh", done, 16)
    terminal.flush()
    if done == 5:
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        kept = sys.stdout
    print(f"the script at {done}", flush=True)
    print(f"its error at {done}", file=sys.stderr)
    terminal.write(f"a rank at {done}\\n", err=bool(done % 2))
    terminal.flush()
    if not os.fork():
        print(f"a fork at {done}")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
terminal.progress("mesh", 16, 16)
terminal.close()
print("kept:", kept is not sys.stdout, file=kept)
"""

#: Standard output is a file, and two meshes start.
ELSEWHERE = """
import os, sys, time
from meshrt.mesh.terminal import Terminal

with open(sys.argv[2], "w") as sys.stdout:
    terminal = Terminal()
    for mesh, done, total in (("a", 1, 10), ("b", 2, 20), ("a", 10, 10), ("b", 20, 20)):
        terminal.progress(mesh, done, total)
        terminal.flush()
        while done == 2 and not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        print(type(sys.stdout).__name__, end=" ")
    terminal.close()
"""


def test_a_bar_is_below_all_that_is_written_and_goes_without_a_trace(tmp_path: Path) -> None:
    with emulated([sys.executable, "-Wignore", "-c", PROGRAM, str(tmp_path / "seen")], lines=100) as me:
        me.sees("meshrt: 5/16 ranks started |")
        (tmp_path / "seen").touch()
        lines = me.ends().splitlines()
        assert me.code == 0
    who = ("the script", "its error", "a rank", "a fork")
    assert lines == [*(f"{each} at {done}" for done in range(1, 16) for each in who), "kept: True"]


def test_a_bar_counts_all_meshes_and_leaves_output_alone_that_is_no_terminal(tmp_path: Path) -> None:
    seen, out = tmp_path / "seen", tmp_path / "out"
    with emulated([sys.executable, "-c", ELSEWHERE, str(seen), str(out)]) as me:
        me.sees("meshrt: 3/30 ranks started |")
        seen.touch()
        assert me.ends() == "" and me.code == 0
    assert out.read_text() == 4 * "TextIOWrapper "


def test_a_script_without_streams_has_no_bar() -> None:
    code = """
import sys
from meshrt.mesh.terminal import Terminal

err, sys.stdout, sys.stderr = sys.stderr, None, None
terminal = Terminal()
terminal.progress("mesh", 1, 2)
terminal.flush()
print("nowhere")
terminal.close()
err.write("whole")
"""
    with emulated([sys.executable, "-c", code]) as me:
        assert me.ends() == "whole" and me.code == 0


SLOW_START = str(ROOT / "tests" / "support" / "slow_start.py")


def printed() -> list[str]:
    """Return the lines of ``slow_start.py``, sorted."""
    places = [(f"[job hosts={rank // 4},gpus={rank % 4}]", rank) for rank in range(16)]
    whole = [f"{place} rank {rank} begins and is whole, {'x' * 40}" for place, rank in places]
    return sorted([*whole, *(f"{place} rank {rank} has an error" for place, rank in places), "all have started"])


def settled(me: Emulator) -> str:
    me.settles()
    return me.shown


@pytest.mark.slow
def test_what_ranks_print_while_others_start_is_whole_and_above_the_bar(tmp_path: Path) -> None:
    with emulated([sys.executable, SLOW_START, str(tmp_path)], lines=60, CI="") as me:
        (tmp_path / "host 1").touch()
        me.sees("meshrt: 8/16 ranks started |")
        (tmp_path / "print").touch()
        wait_until(lambda: settled(me).count(" rank ") == 16, SECONDS, "lines of 8 ranks")
        assert set(me.shown.splitlines()) < set(printed())
        (tmp_path / "host 2").touch()
        me.sees("meshrt: 12/16 ranks started |")
        (tmp_path / "host 3").touch()
        assert sorted(me.ends().splitlines()) == printed()
        assert me.code == 0


@pytest.mark.slow
def test_a_terminal_that_cannot_erase_has_no_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("host 1", "host 2", "host 3", "print"):
        (tmp_path / name).touch()
    demo = run_path(str(ROOT / "examples" / "demo.py"))
    typist = demo["Typist"](sys.executable, SLOW_START, str(tmp_path), cwd=tmp_path)
    try:
        typist.expect("all have started")
        assert typist.end() == 0
    finally:
        typist.close()
    assert sorted(capsys.readouterr().out.splitlines()) == printed()
