"""A script whose modules are on its own machine alone; and hosts that cannot run it."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import meshrt
from tests.cluster import fetched
from tests.cluster.conftest import Cluster
from tests.dap.ide import Ide
from tests.support.markers import marked_line
from tests.support.waiting import wait_until


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Below /tmp, of which each machine has its own."""
    assert str(tmp_path).startswith("/tmp/")
    return fetched.write(tmp_path)


def start(cluster: Cluster, script: Path, what: str, *, agents: str = "", **engine: object) -> subprocess.Popen[str]:
    more = {"CHECKOUT": str(script.with_name("checkout")), "ENGINE": json.dumps(engine)}
    if agents:
        more["AGENTS"] = agents
    command = [*cluster.inside, sys.executable, str(script), what]
    environment = {**cluster.environment, **more}
    cluster.programs.append(
        subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    )
    return cluster.programs[-1]


@pytest.mark.slow
def test_what_the_hosts_do_not_have_is_fetched(cluster: Cluster, script: Path) -> None:
    out, err = start(cluster, script, "use").communicate(timeout=100)
    assert out.splitlines() == [
        "n2",
        "editable",
        "mapped",
        "deep and near",
        str(script.with_name("pkg") / "deep.py"),
        "in a namespace",
        "a table",
        "['table.txt']",
        "a table",
        "42",
        "False",
        "{'from a base class'}",
        "True ModuleNotFoundError: No module named 'nothing_has_this'",
        "True ModuleNotFoundError: No module named 'pkg.nothing'",
        "False ImportError: module compiled cannot be fetched by n1: "
        f"{script.with_name('compiled.abi3.so')} is compiled; "
        "install it on that machine",
    ], err


def test_a_preloaded_module_is_fetched(cluster: Cluster, script: Path) -> None:
    out, err = start(cluster, script, "preload").communicate(timeout=100)
    assert out == "{True}\n", out + err


def test_a_fork_of_a_rank_fetches_too(cluster: Cluster, script: Path) -> None:
    out, err = start(cluster, script, "fork").communicate(timeout=100)
    assert out == "{'lonely'}\n", out + err


def test_a_module_that_has_changed_is_new_in_a_new_mesh(cluster: Cluster, script: Path) -> None:
    out, err = start(cluster, script, "change").communicate(timeout=100)
    assert out.splitlines() == ["{'late'}", "{'late'}", "{'changed'}"], out + err


@pytest.mark.nightly
def test_an_import_waits_for_a_script_that_is_stopped_and_says_so(cluster: Cluster, script: Path) -> None:
    program = start(cluster, script, "busy")
    wait_until(lambda: state_of(program.pid) == "T", 60, "the script does not stop itself")
    time.sleep(6)  # longer than an import waits without a word
    program.send_signal(signal.SIGCONT)
    out, err = program.communicate(timeout=100)
    assert out.count("{'late'}") == 1, out + err
    assert " was requested from the script's machine: no answer for 5 s" in out + err


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_tracebacks_show_the_text_that_runs_and_not_a_file_of_the_host(cluster: Cluster, script: Path) -> None:
    helper = script.with_name("helper.py")
    stale = f"mkdir -p {script.parent} && echo 'STALE = 1' > {script} && cp {script} {helper}"
    assert cluster.machines[0].run("sh", "-c", stale).returncode == 0
    try:
        out, err = start(cluster, script, "fail").communicate(timeout=100)
    finally:
        cluster.machines[0].run("rm", "-r", str(script.parent))
    number = marked_line(str(helper), "fails")
    line = f'  File "{helper}", line {number}, in fails\n    raise ValueError("of a helper")'
    assert line in out, out + err
    assert 'raise ValueError("of a helper")' in err, out + err
    own = f'  File "{script}", line {marked_line(str(script), "own")}, in own\n    raise KeyError("in the script")'
    assert own in out, out + err
    assert f"{helper} of host n1 differs from that of the script, which the ranks use" in err


@pytest.mark.nightly
def test_a_breakpoint_in_fetched_code_shows_its_text(cluster: Cluster, script: Path) -> None:
    program = start(cluster, script, "stop")
    helper = script.with_name("helper.py")
    wait_until(lambda: cluster.meshrt("list", fails=True).count("| worker ") == 4, 60, "four stopped ranks")
    line = marked_line(str(helper), "stopped")
    assert f"helper.py:{line - 1}" in cluster.meshrt("where")
    cluster.meshrt("break", f"helper.py:{line}")
    cluster.meshrt("continue")
    wait_until(lambda: f"helper.py:{line} " in cluster.meshrt("where", fails=True), 60, "the next stop")
    assert f"{line}  ->\t    return more" in cluster.meshrt("cast", "worker", "ranks(all)", "list")
    assert "def stops(value):" in cluster.meshrt("source", "worker", "stops")
    assert "breakpoint 2" in cluster.meshrt("break", f"script.py:{marked_line(str(script), 'own')}")
    cluster.meshrt("continue")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, "values [4, 4, 4, 4]" in out) == (0, True), err


@pytest.mark.slow
@pytest.mark.one_python
def test_an_ide_stops_in_fetched_code_at_its_path_on_the_machine_of_the_script(
    cluster: Cluster, script: Path, tmp_path: Path
) -> None:
    pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")
    program = start(cluster, script, "ide")
    helper, line = script.with_name("helper.py"), marked_line(str(script.with_name("helper.py")), "plain")
    assert program.stdin is not None and program.stdout is not None
    address = str(tmp_path / "ide")
    words = [sys.executable, "-m", "meshrt", "dap", program.stdout.readline().strip(), "--socket", address]
    router = subprocess.Popen([*cluster.inside, *words], env=cluster.environment, stdout=subprocess.PIPE, text=True)
    cluster.programs.append(router)
    assert router.stdout is not None and address in router.stdout.readline()
    with Ide(address, {}) as ide:
        ide.children(4)
        verified = ide.set_breakpoints(str(helper), [line])
        assert [each[0]["verified"] for name, each in verified.items() if name != ide.root.name] == [True] * 4
        program.stdin.write("\n")
        program.stdin.flush()
        for session in ide.stopped(4):
            frame = session.stack()[0]
            assert (frame["name"], frame["line"], frame["source"]["path"]) == ("plain", line, str(helper))
            assert frame["source"].get("sourceReference", 0) == 0
            assert session.evaluate("value") == "3"
        ide.continue_all()
        out, err = program.communicate(timeout=60)
    assert "values [6, 6, 6, 6]" in out, out + err


def test_another_minor_version_of_python_is_refused(cluster: Cluster, script: Path) -> None:
    other = next(interpreters(lambda version: version[:2] not in (sys.version_info[:2], (2, 7))), None)
    if other is None:
        pytest.skip("no other Python is installed")
    out, err = start(cluster, script, "join", python=other[0]).communicate(timeout=100)
    theirs, ours = ".".join(map(str, other[1])), platform.python_version()
    assert f" runs Python {theirs} ({other[0]}), the script Python {ours}" in out, out + err
    assert "SpawnError host n" in out
    wait_until(cluster.is_empty, 20, "the other agent does not end")


def test_a_python_without_packages_is_named(cluster: Cluster, script: Path) -> None:
    bare = f"printf '#!/bin/sh\\nexec {sys.executable} -S \"$@\"' > /tmp/home/bare; chmod +x /tmp/home/bare"
    assert all(machine.run("sh", "-c", bare).returncode == 0 for machine in cluster.machines)
    out, err = start(cluster, script, "join", python="/tmp/home/bare").communicate(timeout=100)
    python = f"Python {platform.python_version()} ({sys.executable})"
    assert f" runs {python}, which has no package cloudpickle, msgpack" in out, out + err
    out, err = start(cluster, script, "join", python="/no/such/python").communicate(timeout=100)
    assert " has no interpreter /no/such/python; python= names another one" in out, out + err


@pytest.mark.slow
def test_meshrt_may_be_elsewhere_on_a_host(cluster: Cluster, script: Path) -> None:
    package = Path(meshrt.__file__).parent
    for machine in cluster.machines:
        hide = f"cp -r {package.parent}/meshrt /tmp/home/ && mount -t tmpfs none {package}"
        assert machine.run("sh", "-c", hide).returncode == 0
    words = ["env", "HOME=/tmp/home", "PYTHONPATH=/tmp/home"]
    agents = json.dumps({machine.name: machine.command(*words) for machine in cluster.machines})
    try:
        program = start(cluster, script, "use", agents=agents)
        out, err = program.communicate(timeout=100)
    finally:
        for machine in cluster.machines:
            machine.run("umount", str(package))
    assert "deep and near" in out, out + err


def interpreters(wanted: Callable[[tuple[int, ...]], bool]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield interpreters that the machines have, too, with their versions."""
    for path in sorted(Path.home().glob(".pyenv/versions/*/bin/python")):
        version = tuple(int(part) for part in path.parents[1].name.split(".") if part.isdigit())
        if wanted(version):
            yield str(path), version
