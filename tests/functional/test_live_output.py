"""What the terminal shows of the output of ranks, as the user sets it; the files have everything."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshrt
from meshrt import Actor, ActorError, SelectionError, UsageError, endpoint, proc_mesh
from tests.support.programs import environment, run_python
from tests.support.screen import Screen
from tests.support.waiting import wait_until


class Printer(Actor):
    @endpoint
    def say(self, *lines: str) -> None:
        for line in lines:
            print(line)

    @endpoint
    def count(self, count: int) -> None:
        for number in range(count):
            print("line", number)

    @endpoint
    def set_logs(self) -> None:
        meshrt.logs("off")

    @endpoint
    def with_mesh(self) -> None:
        with proc_mesh(n=2, name="made", logs="ranks(1)") as mesh:
            mesh.spawn("inner", Printer).say.call("of an inner mesh").get(20)


@pytest.fixture(autouse=True)
def as_at_start() -> Iterator[None]:
    yield
    meshrt.logs(None)


def in_files(mesh_name: str) -> dict[str, list[str]]:
    """Return the lines of the files of a mesh, by rank."""
    files = Path(os.environ["MESHRT_RUNS"]).glob(f"*/{mesh_name}-*.log")
    return {file.suffixes[0][1:]: file.read_text().splitlines() for file in files}


def test_equal_lines_of_many_ranks_are_shown_once_and_are_in_each_file() -> None:
    done = run_python(
        "-c",
        "from meshrt import proc_mesh\nfrom tests.functional.test_live_output import Printer\n"
        "printer = proc_mesh(n=4, name='equal', logs='fold=60').spawn('printer', Printer)\n"
        "printer.say.call('loading', 'ready').get(20)\n"
        "printer.slice(n=2).say.call('only one').get(20)\n",
    )
    assert done.stdout == "[printer 0-3] loading\n[printer 0-3] ready\n[printer n=2] only one\n"
    common = ["loading", "ready"]
    assert in_files("equal") == {"0": common, "1": common, "2": [*common, "only one"], "3": common}


def test_a_selection_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    with proc_mesh(hosts=2, gpus=2, name="chosen", logs="ranks(hosts=1) fold=off") as mesh:
        mesh.spawn("printer", Printer).say.call("here").get(20)
    out.wait_for_lines(2)
    assert sorted(out.text.splitlines()) == [f"[printer hosts=1,gpus={gpu}] here" for gpu in range(2)]
    assert in_files("chosen") == {rank: ["here"] for rank in "0123"}


def test_a_limit_counts_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    with proc_mesh(n=1, name="limited", logs="limit=10") as mesh:
        mesh.spawn("printer", Printer).count.call(1000).get(20)

        def counted() -> int:  # more than once if printing takes more than a second
            told = re.findall(r"meshrt: \.\.\. (\d+) lines left out; they are in the files \(meshrt logs ", err.text)
            return len(out.text.splitlines()) + sum(map(int, told))

        wait_until(lambda: counted() == 1000, 20, "each line is shown or counted")
    assert 10 <= len(out.text.splitlines()) < 1000
    assert len(in_files("limited")["0"]) == 1000


def test_it_changes_while_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is waited for before the next change: what is on its way is shown as is wanted when it comes.

    So a rank says nothing, where that is hidden, that a later change would show.
    """
    out = Screen.instead_of("stdout", monkeypatch)
    first, second = (proc_mesh(n=2, name=name).spawn(name, Printer) for name in ("first", "second"))
    meshrt.logs("ranks(0)")
    first.say.call("one").get(20)
    out.wait_for("[first n=0] one\n")
    meshrt.logs("ranks(1)", mesh=second)
    second.slice(n=1).say.call("two").get(20)
    out.wait_for("[second n=1] two\n")
    meshrt.logs(None, mesh=second)
    second.slice(n=0).say.call("three").get(20)
    out.wait_for("[second n=0] three\n")
    meshrt.logs("on", mesh=second)
    meshrt.logs("off")
    first.say.call("hidden").get(20)
    second.slice(n=1).say.call("four").get(20)
    out.wait_for("[second n=1] four\n")
    assert len(out.text.splitlines()) == 4


def test_a_mesh_of_a_rank_has_a_setting_too(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    proc_mesh(n=1).spawn("printer", Printer).with_mesh.call().get(30)
    assert out.wait_for_lines(1) == ["[inner n=1] of an inner mesh"]


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(UsageError, match=r"logs='quiet': 'quiet' is not an option; expected 'on', 'off', or options"):
        proc_mesh(n=1, logs="quiet")
    with pytest.raises(SelectionError, match="no dimension 'hosts'"):
        proc_mesh(n=1, logs="ranks(hosts=0)")
    mesh = proc_mesh(n=2)
    printer = mesh.spawn("printer", Printer)
    with pytest.raises(UsageError, match="logs: 'limit=many': 'limit=many': a limit is a number of lines"):
        meshrt.logs("limit=many")
    with pytest.raises(SelectionError, match="rank 5"):
        meshrt.logs("ranks(5)", mesh=printer)
    with pytest.raises(UsageError, match="this is a slice of it"):
        meshrt.logs("off", mesh=mesh.slice(n=0))
    with pytest.raises(UsageError, match="not str"):
        meshrt.logs("off", mesh="printer")  # type: ignore[arg-type]
    with pytest.raises(ActorError, match=r"meshrt.logs\(\) changes the terminal of the script"):
        printer.slice(n=0).set_logs.call_one().get(20)


@pytest.mark.slow
def test_the_environment_of_a_program() -> None:
    program = (
        "from meshrt import proc_mesh\nfrom tests.functional.test_live_output import Printer\n"
        "proc_mesh(n=2).spawn('printer', Printer).say.call('hello').get()"
    )
    for setting, shown in (("off", ""), ("ranks(1)", "[printer n=1] hello\n")):
        done = run_python("-c", program, env=environment(MESHRT_LOGS=setting))
        assert (done.returncode, done.stdout) == (0, shown)
    done = run_python("-c", program, env=environment(MESHRT_LOGS="rank 1"))
    assert done.returncode == 1
    assert "UsageError: MESHRT_LOGS='rank 1': 'rank' is not an option; expected 'on', 'off'" in done.stderr
