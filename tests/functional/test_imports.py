"""What ``import meshrt`` costs: nothing heavy is loaded before it is used."""

from __future__ import annotations

import json

import pytest

from tests.support.programs import run_python

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


def test_a_rank_without_a_breakpoint_loads_no_debugger_and_a_sync_one_no_loop() -> None:
    done = run_python(
        "-c",
        "from meshrt import *\n"
        "from tests.support.actors import Echo\n"
        "def modules():\n"
        "    import sys\n"
        "    return [name for name in sys.modules if name in ('pdb', 'uvloop', 'bdb') or 'meshrt.debug' in name]\n"
        "print('LOADED', proc_mesh(n=1).spawn('echo', Echo).apply.call_one(modules).get(20))",
    )
    assert done.returncode == 0 and "LOADED []" in done.stdout
