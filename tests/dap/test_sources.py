"""Where the text of a program comes from that has no file, or has it elsewhere; and whose code is stopped in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshrt import Future, proc_mesh
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.support.markers import marked_line
from tests.support.programs import another_program

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__

#: As it is typed at ``python -c``: no file has it, and no rank has the class but as a pickle.
TYPED = """
from meshrt import Actor, endpoint, proc_mesh

class Typed(Actor):
    @endpoint
    def double(self, value):
        answer = value * 2
        breakpoint()
        return answer

typed = proc_mesh(gpus=1).spawn("typed", Typed)
typed.initialized.get()
print("up", flush=True)
input()
print(typed.double.call_one(4).get(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("view", ["sessions", "threads"])
def test_a_class_that_no_file_has(view: str) -> None:
    with another_program(TYPED) as program, router(pid=program.pid) as served, served.ide(meshView=view) as ide:
        session = ide.children(1)[0] if view == "sessions" else ide.root
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write("\n")
        program.stdin.flush()
        ide.stopped()
        top = session.stack()[0]
        assert top["name"].endswith("double") and session.evaluate("answer") == "8"
        source = top["source"]
        assert source["sourceReference"], source
        text = session.client.request("source", source=source, sourceReference=source["sourceReference"])["content"]
        assert "answer = value * 2" in text.splitlines()[top["line"] - 3], (top, text)
        ide.continue_all()
        assert program.stdout.readline() == "8\n"
        program.stdin.write("\n")
        program.stdin.flush()
        # The script ends: so do the router and its sessions, without being asked.
        ide.root.wait_over()
        assert "the program has ended" in ide.root.client.output
        assert served.process.wait(WAIT) == 0


def test_code_of_others_and_paths_of_another_machine(tmp_path: Path) -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served:
        for mine in (True, False):
            with served.ide(justMyCode=mine) as ide:
                ide.set_breakpoints(
                    json.__file__, [marked_line_of(json.__file__, "return _default_encoder.encode(obj)")]
                )
                (rank,) = ide.children(1)
                call: Future[Any] = trainer.dumped.call_one([1])
                if not mine:
                    ide.stopped()
                    assert [frame["name"] for frame in rank.stack()][:2] == ["dumps", "dumped"]
                    ide.continue_all()
                assert call.get(WAIT) == "[1]"
                ide.disconnect()

        # What is edited here runs there.
        here = tmp_path / Path(SOURCE).name
        here.write_text(Path(SOURCE).read_text())
        mappings = [{"localRoot": str(tmp_path), "remoteRoot": str(Path(SOURCE).parent)}]
        with served.ide(pathMappings=mappings) as ide:
            ide.set_breakpoints(here, [marked_line(SOURCE, "step")])
            (rank,) = ide.children(1)
            call = trainer.step.call_one(1)
            ide.stopped()
            assert rank.stack()[0]["source"]["path"] == str(here)
            ide.continue_all()
            assert call.get(WAIT) == 1


def marked_line_of(file: str, text: str) -> int:
    """Return the number of the first line of a file with that text."""
    return next(number for number, line in enumerate(Path(file).read_text().splitlines(), 1) if text in line)
