"""What ``import meshrt`` costs: nothing heavy is loaded before it is used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import meshrt
from tests.support.programs import environment, run_python

HEAVY = {
    "asyncio",
    "cloudpickle",
    "meshrt.debug",
    "msgpack",
    "multiprocessing",
    "numpy",
    "pdb",
    "prompt_toolkit",
    "psutil",
    "tabulate",
    "uvloop",
}


def loaded(program: str) -> set[str]:
    code = f"{program}\nimport json, sys\nprint('LOADED ' + json.dumps(list(sys.modules)))"
    done = run_python("-c", code)
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    return set(json.loads(line.removeprefix("LOADED ")))


def test_import_alone_loads_next_to_nothing() -> None:
    modules = loaded("import meshrt")
    assert not modules & HEAVY
    assert {name for name in modules if name.startswith("meshrt")} == {"meshrt"}


@pytest.mark.parametrize(
    "program",
    [
        "from meshrt import Actor, endpoint, proc_mesh, current_rank, ValueMesh, MeshError",
        "from meshrt import *",
    ],
)
def test_names_bring_no_debugger_and_no_loop(program: str) -> None:
    modules = loaded(program)
    debugger = {name for name in modules if name.startswith("meshrt.debug")}
    way_in = "meshrt.debug.prompt.scripted"
    assert debugger == ({"meshrt.debug", "meshrt.debug.prompt", way_in} if "*" in program else set())
    # asyncio is loaded by the loop, while the agent starts in parallel.
    assert not modules & (HEAVY - {"meshrt.debug", "msgpack"})


def test_a_rank_without_a_breakpoint_loads_no_debugger_no_parser_and_a_sync_one_no_loop() -> None:
    done = run_python(
        "-c",
        "from meshrt import *\n"
        "from tests.support.actors import Echo\n"
        "def modules():\n"
        "    import re, sys\n"
        "    unwanted = re.compile('pdb|uvloop|bdb|meshrt.debug.*|meshrt.selection.grammar.*')\n"
        "    return [name for name in sys.modules if unwanted.fullmatch(name)]\n"
        "print('LOADED', proc_mesh(n=1).spawn('echo', Echo).apply.call_one(modules).get(20))",
    )
    assert done.returncode == 0 and "LOADED []" in done.stdout


@pytest.mark.parametrize(("abiflags", "variable", "warns"), [("t", "", True), ("t", "1", False), ("", "", False)])
def test_a_free_threaded_build_is_told_of(
    abiflags: str, variable: str, warns: bool, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv("MESHRT_FREE_THREADED", variable)
    for _ in range(2):
        meshrt._tell_of_free_threading(abiflags)
    texts = [str(each.message) for each in recwarn if issubclass(each.category, RuntimeWarning)]
    assert len(texts) == warns and all("use a build with the GIL (MESHRT_FREE_THREADED=1" in text for text in texts)


def test_a_program_on_a_free_threaded_build_says_it_once(tmp_path: Path) -> None:
    """Whatever processes it has: all of them are told here that their Python is such a build."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.abiflags += 't'\n")
    program = (
        "import sys\nfrom meshrt import *\nfrom tests.support.actors import Echo\n"
        "def flags():\n    import sys\n    return sys.abiflags\n"
        "print(proc_mesh(n=1).spawn('echo', Echo).apply.call_one(flags).get(20))"
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = run_python("-c", program, env=environment(PYTHONPATH=path))
    assert done.returncode == 0 and done.stdout == "t\n"
    assert done.stderr.count("RuntimeWarning: meshrt is not tested on free-threaded builds") == 1
