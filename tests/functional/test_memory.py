"""Memory of real ranks: from /proc whatever they do, and their variables, if they can tell."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import meshrt
from meshrt import ActorError, ActorMesh, LocalEngine, ProcessDied, SelectionError, UsageError, proc_mesh
from meshrt.hooks.services import RootServices
from meshrt.host.memory import private
from meshrt.memory import root
from meshrt.memory.sizing import Snapshot
from meshrt.mesh.program import start_root
from meshrt.program.asking import gather_all
from tests.support.documented import parts_of, section
from tests.support.holders import MIB, Holder
from tests.support.pausing import paused
from tests.support.programs import another_program, environment, run_python
from tests.support.waiting import wait_until

WAIT = 30


#: What stands in the descriptions of docs/json.md beside keys.
WORDS = {
    *("budget", "version", "attribute", "class", "global", "local", "put", "argument", "result", "file"),
    *("item", "element", "referent", "itself", "rest", "starting"),
}


def holders(count: int = 4, agents: int = 2) -> tuple[ActorMesh[Holder], list[int]]:
    holder = proc_mesh(n=count, engine=LocalEngine(agents)).spawn("holder", Holder)
    return holder, holder.pid.call().get(WAIT).values()


def rows(document: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["rank"]: row for row in document["ranks"]}


def sizes(document: dict[str, Any], where: str) -> dict[int, dict[str, Any]]:
    """Return what each rank holds by a name."""
    return {
        rank: size
        for row in document["variables"]
        if row["where"] == where
        for size in row["sizes"]
        for rank in size["ranks"]
    }


def close(count: int, expected: int) -> bool:
    return expected <= count < expected + 5000


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are well are waited for, however slow the machine is."""
    monkeypatch.setattr(root, "_HEAP_SECONDS", WAIT)
    monkeypatch.setattr(root, "_MEASURE_SECONDS", WAIT)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_ranks_are_measured_whatever_they_do(tmp_path: Path) -> None:
    holder, pids = holders(5)
    with paused(pids[2]):
        measure_whatever_they_do(holder, pids, tmp_path)


def measure_whatever_they_do(holder: ActorMesh[Holder], pids: list[int], tmp_path: Path) -> None:
    holder.slice(n=3).hold_gil.broadcast(str(tmp_path / "inside"))
    wait_until((tmp_path / "inside").exists)
    os.kill(pids[4], signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pids[4]))
    wait_until(lambda: rows(meshrt.memory())[4]["state"] == "dead")
    for document in (meshrt.memory(), meshrt.memory(exact=True)):
        found = rows(document)
        assert [row["state"].replace("idle", "running") for row in found.values()] == [
            "running", "running", "not-answering", "not-answering", "dead",
        ]  # fmt: skip
        assert found[2]["note"] == "its process was stopped by a signal (SIGCONT resumes it)"
        assert found[3]["note"] == "C code holds its GIL" and found[4]["note"] == "was killed by SIGKILL"
        assert "rss" not in found[4]
        for rank in range(4):
            row = found[rank]
            assert row["pid"] == pids[rank] and row["actors"] == ["holder"] and row["coords"] == {"n": rank}
            assert abs(row["rss"] - psutil.Process(pids[rank]).memory_info().rss) < 4 * MIB
            assert 0 < row["pss"] <= row["rss"] == row["anonymous"] + row["file"] + row["shmem"]
            assert ("blocks" in row) == ("malloc_used" in row) == (rank < 2)
        assert document["totals"]["rss"] == sum(found[rank]["rss"] for rank in range(4))
        assert [each["kind"] for each in document["processes"]] == ["script", "agent", "agent"]
    assert sizes(document, "self.weights").keys() == {0, 1}


def test_ranks_whose_agent_does_not_answer_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _, pids = holders(2)
    asked: list[Mapping[str, Sequence[int]]] = []

    def gather(services: RootServices, targets: Mapping[str, Sequence[int]], *rest: Any, **more: Any) -> Any:
        asked.append(targets)
        return gather_all(services, targets, *rest, **more)

    monkeypatch.setattr(root, "gather_all", gather)
    monkeypatch.setattr(root, "_SILENT_SECONDS", 5.0)
    with paused(psutil.Process(pids[1]).ppid()):
        document = meshrt.memory(variables=True)
    assert [list(targets.values()) for targets in asked] == [[[0]]]
    assert sizes(document, "self.weights").keys() == {0}
    row = rows(document)[1]
    assert (row["state"], row["note"]) == ("not-answering", "the agent of its host does not answer")
    assert "rss" not in row and document["totals"]["without_rss"] == 1


def test_variables_of_actors_their_classes_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, _ = holders()
    holder.slice(n=2).grow.call_one(MIB).get(WAIT)
    document = meshrt.memory(exact=True)
    weights, view = sizes(document, "self.weights"), sizes(document, "self.view")
    assert all(close(size["bytes"], 4 * MIB) and size["exact"] for size in (*weights.values(), *view.values()))
    assert weights[0]["shape"] == [4 * MIB] and weights[0]["dtype"] == "uint8" and view[0]["shape"] == [10]
    assert weights[0]["with"] == ["self.view"] and view[0]["with"] == ["self.weights"]
    batches = sizes(document, "self.batches")
    assert [close(batches[rank]["bytes"], count * MIB) for rank, count in enumerate((2, 10, 2, 2))] == [True] * 4
    assert close(sizes(document, "Holder.history")[3]["bytes"], MIB)
    cache = sizes(document, "tests.support.holders.CACHE")
    assert close(cache[2]["bytes"], MIB) and cache[0]["bytes"] < 1000
    assert sizes(document, "self.handle")[0]["bytes"] < 2000, "the actor is not walked into"
    row = rows(document)[0]
    assert row["exact"] and close(row["total"] - row["unique"], 4 * MIB)
    assert row["unexplained"] == row["rss"] - row["file"] - row["malloc_free"] - row["unique"]
    chosen = meshrt.memory("ranks(n=1)", actor="holder", exact=True)
    assert rows(chosen).keys() == sizes(chosen, "self.batches").keys() == {1}
    with pytest.raises(SelectionError, match="4 does not exist"):
        meshrt.memory("ranks(4)")
    with pytest.raises(UsageError, match="did you mean 'holder'"):
        meshrt.memory(actor="hodler")
    monkeypatch.setattr(root, "_AT_ONCE", 1)
    assert sizes(meshrt.memory(variables=True), "self.weights").keys() == {0, 1, 2, 3}
    monkeypatch.setattr(root, "_VARIABLES_SECONDS", -1.0)  # they have taken all of it
    late = meshrt.memory(variables=True)
    assert sizes(late, "self.weights") == {} and rows(late)[3]["state"] in ("running", "idle")
    assert "not measured: the other ranks used the time limit of" in rows(late)[3]["note"]


@pytest.mark.slow
def test_a_variable_is_opened() -> None:
    holder, _ = holders()
    holder.slice(n=2).keep.call_one({"old": [b"x" * MIB], "new": b"y" * MIB}).get(WAIT)
    document = meshrt.memory(variables="self.batches")
    assert document["opened"] == "self.batches" and "unexplained" not in rows(document)[0]
    whole, first, last = (sizes(document, f"self.batches{each}") for each in ("", "[0]", "[9]"))
    assert [close(whole[rank]["bytes"], count * MIB) for rank, count in enumerate((2, 10, 2, 2))] == [True] * 4
    assert all(close(size["bytes"], MIB) and size["exact"] for size in first.values()) and first.keys() == {0, 1, 2, 3}
    assert last.keys() == {1}
    # Ranks that have no such variable say so, if others do.
    shown = command("--vars", "holder.self.kept['old']")
    assert re.search(r"^self\.kept\['old'\]\[0\] +bytes +len 1048576 +(= 1\.0 MiB) +2$", shown, re.M)
    assert "holder.self.kept['old'] of 1 rank: 1.0 MiB" in shown and "PSS  " not in shown
    assert "no variables of 3 ranks (0-1,3): holder.self.kept['old'] does not exist there" in shown
    for name, complaint in (
        ("self.batchs", "no variable 'self.batchs'; did you mean 'self.batches'?"),
        ("self.kept['odl']", "self.kept (dict) contains no \"self.kept['odl']\"; did you mean \"self.kept['old']\"?"),
        ("self.weights.x", "self.weights (numpy.ndarray) cannot be opened: it contains no variables"),
    ):
        with pytest.raises(UsageError, match=re.escape(complaint)):
            meshrt.memory("ranks(n=2)", variables=name)
    for words in ((str(os.getpid()), "--vars", "nosuch"), ("--vars", "nosuch")):
        complaint = command(*words, code=2)
        assert "--vars nosuch: not a variable (these are written as --vars shows them: self.cache, " in complaint
        assert complaint.rstrip().endswith(") or program; no actor 'nosuch'; there are: holder")
    assert command("holder", "-n1") and "(to select a rank: --ranks 1)" in command("1", code=2)


def test_a_budget_ends_the_count_and_exact_lifts_it() -> None:
    holder, _ = holders(1, 1)
    holder.many.call_one(300_000).get(WAIT)
    bound = sizes(meshrt.memory(variables=True, milliseconds=0), "self.numbers")[0]
    assert not bound["exact"] and bound["why"] == "budget"
    exact = sizes(meshrt.memory(exact=True), "self.numbers")[0]
    assert exact["exact"] and exact["bytes"] > 300_000 * 80 > bound["bytes"] > 300_000 * 8
    with pytest.raises(UsageError, match="milliseconds is -1; expected a number, 0 or more"):
        meshrt.memory(variables=True, milliseconds=-1)
    with pytest.raises(UsageError, match="milliseconds is nan; expected a number, 0 or more, or null"):
        meshrt.memory(variables=True, milliseconds=float("nan"))
    with pytest.raises(UsageError, match="variables is 5; expected True, False, or the name of a variable"):
        meshrt.memory(variables=5)  # type: ignore[arg-type]


@pytest.mark.slow
def test_references_and_who_holds_them() -> None:
    holder, _ = holders(3, 1)
    shared = meshrt.put(np.zeros(MIB, np.uint8), lazy=True)
    holder.keep.call(shared).get(WAIT)
    holder.slice(n=2).keep.call_one(np.zeros(2 * MIB, np.uint8)).get(WAIT)
    ones = holder.slice(n=0).ones.call_one(MIB // 2).get(WAIT)
    small = [meshrt.put(number) for number in range(100)]
    document = meshrt.memory(references=True)
    pids = [row["pid"] for row in document["ranks"]]
    argument, put, result, many = sorted(document["references"], key=lambda row: -row["size"])
    assert result["kind"] == "result" and re.fullmatch(r"\S+holders\.py:\d+ holder\.ones\(\)", result["site"])
    assert argument["site"].startswith(f"{__file__}:") and argument["site"] != put["site"]
    assert argument["kind"] == "argument" and [pid for pid, _ in argument["holders"]] == pids[2:]
    assert put["kind"] == many["kind"] == "put" and put["owner"] == os.getpid() and many["count"] == len(small)
    assert sorted(pid for pid, _ in put["holders"]) == sorted([os.getpid(), *pids[:2]]), "rank 2 holds another by now"
    assert put["site"].startswith(__file__) and put["size"] >= MIB and many["holders"] == [[os.getpid(), 1]]
    assert [row.get("store_held", 0) >= MIB for row in document["ranks"]] == [True, True, True]
    assert [row.get("store_pinned", 0) > 0 for row in document["ranks"]] == [True, False, False], "the script has it"
    assert document["references_left_out"] == {"count": 0, "bytes": 0}
    assert document["stores"][0]["committed"] >= 3 * MIB
    kept = sizes(meshrt.memory(exact=True), "self.kept")
    assert [kept[rank]["devices"] for rank in (0, 1, 2)] == [
        {"shared memory": size} for size in (shared.nbytes, shared.nbytes, 2 * MIB)
    ], "a reference keeps all of it, an array what it shows"
    both = Snapshot().measure([shared, shared.get(), shared])
    assert both.exact and both.devices == {"shared memory": shared.nbytes}, "what is seen of it is there once"
    text = command("--refs", "-n", "3")
    assert re.search(r"  STORE +PINNED +HOLDS  ", text)
    assert re.search(r"\nREFERENCE +KIND +SIZE +OWNER +HELD BY", text) and re.search(r"\n\+100 more, ", text)
    assert re.search(rf"{put['names'][0]} +put +1\.0 MiB +script +script, 0-1 ", text)
    assert re.search(
        r"shared memory of \S+: \d.* used of .*; 103 references: 3\.\d MiB, each byte once \(5\.\d MiB", text
    )
    assert re.search(rf"{__file__}:\d+ +1 +", command("--by", "callsite").replace("...", ""))
    alone = command("--holders", put["names"][0])
    assert alone.startswith("REFERENCE") and alone.count("put") == 1
    name = put["names"][0]
    assert re.search(
        rf"\n0-1 +holder +self\.kept +meshrt\.store\.refs\.ObjectRef +{name}\nscript: in no variable: ", alone
    )
    seen = command("--holders", argument["names"][0], "--budget", "0")
    assert re.search(r"\n2: in no variable that was counted \(--exact counts all\): in a local", seen)
    seen = command("--holders", argument["names"][0])
    assert re.search(rf"\n2 +holder +self\.kept +numpy\.ndarray +{argument['names'][0]}\n", seen)
    assert "no reference has a name that begins with '00000000000000000'" in command("--holders", "0" * 17, code=2)
    assert "hexadecimal digits" in command("--holders", "x", code=2)
    del shared, small, ones


def test_processes_without_a_mesh_and_meshes_without_an_actor() -> None:
    done = run_python("-c", "import meshrt; meshrt.memory()")
    assert "expected a call in a script that has a mesh" in done.stderr
    proc_mesh(n=1).initialized.get(WAIT)
    assert rows(meshrt.memory())[0]["actors"] == []
    assert len(rows(meshrt.memory("ranks(0)"))) == 1


def command(*arguments: str, code: int = 0) -> str:
    done = run_python("-m", "meshrt", "memory", *arguments)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    holder, pids = holders()
    saved = str(tmp_path / "before.json")
    shown = command("--exact", "--save", saved, "-n", "1")
    assert f"  {pids[0]}  " not in shown and f"  {pids[1]}  " in shown
    assert "self.batches  list    len 10   = 10.0 MiB  1" in shown and "+3 more, " in shown
    assert "not attributed to variables: " in shown
    holder.slice(n=2).grow.call_one(20 * MIB).get(WAIT)
    grown = command("--diff", saved, "--exact", "-n", "1")
    assert "tests.support.holders.CACHE  dict    len 1    = 20.0 MiB  +20.0 MiB  2" in grown
    document = json.loads(command("--json", "--by", "host", "--ranks", "n=1:3", str(os.getpid())))
    assert rows(document).keys() == {1, 2} and sum(group["ranks"] for group in document["groups"]) == 2
    assert command("--stats-only").count("\n") == 1
    assert "by type" not in command("--by", "type")
    assert "expected --by callsite without --vars" in command("--by", "callsite", "--vars", code=2)
    assert "expected --by dtype without --refs and --holders" in command("--by", "dtype", "--refs", code=2)
    assert "did you mean" in command("--actor", "hodler", code=2)
    assert "expected 0 to 3" in command("--ranks", "7", code=2)
    assert "expected a file that meshrt memory --save has written" in command("--diff", __file__, code=2)
    assert "--sort growth needs --diff or --watch" in command("--sort", "growth", code=2)
    assert "--watch cannot be combined with --save" in command("--watch", "1", "--save", saved, code=2)
    assert "no meshrt program" in command("nosuch", code=2)


@pytest.mark.slow
def test_devices_of_ranks_and_addresses_of_hosts() -> None:
    holder, _ = holders(2, 2)
    found = meshrt.memory()
    assert all(row["devices"] == {} for row in found["ranks"]) and "devices" not in found["totals"]
    known = {each.address for family in psutil.net_if_addrs().values() for each in family}
    addresses = {each["address"] for each in (*found["ranks"], *found["processes"])}
    assert len(addresses) == 1 and addresses <= {*known, ""}
    shown = command()
    assert "GPU" not in shown and "torch" not in shown and "ADDRESS" not in shown
    assert "ADDRESS" in command("--addresses")
    holder.use_device.call(3 * MIB).get(WAIT)
    found = meshrt.memory()
    assert found["ranks"][1]["devices"] == {"cuda:0": {"used": 3 * MIB // 2, "kept": 3 * MIB, "visible": "5"}}
    hosts = [row["host"] for row in found["ranks"]]
    assert found["totals"]["devices"] == {f"{hosts[0]} cuda:4": 3 * MIB, f"{hosts[1]} cuda:5": 3 * MIB}
    shown = command()
    assert re.search(r"FREE +GPU +STATE", shown) and re.search(r" 3\.0 MiB cuda:4 +(running|idle)", shown)
    assert f"on {hosts[1]} cuda:5: 3.0 MiB kept by torch" in shown


@pytest.mark.slow
def test_the_document_is_as_it_is_documented(tmp_path: Path) -> None:
    holder, pids = holders(2, 1)
    holder.many.call(50_000).get(WAIT)
    shared = meshrt.put(np.zeros(MIB, np.uint8), lazy=True)
    holder.keep.call(shared).get(WAIT)
    saved = tmp_path / "before.json"
    with paused(pids[1]):
        check_the_document(saved)


def check_the_document(saved: Path) -> None:
    command("--exact", "--refs", "--save", str(saved))
    before = json.loads(saved.read_text())
    before["variables"].append({**before["variables"][0], "where": "self.gone"})
    saved.write_text(json.dumps(before))
    name = before["references"][0]["names"][0]
    document = json.loads(command("--diff", str(saved), "--by", "host", "--budget", "1", "--holders", name, "--json"))
    parts = {part: f"{part} {keys}" for part, keys in parts_of(section("The document of `meshrt memory`")).items()}
    row = document["ranks"][0]
    emitted = {
        "document": document,
        "rank": row,
        "process": document["processes"][0],
        "variable": document["variables"][0],
        "size": {key: None for each in document["variables"] for size in each["sizes"] for key in size},
        "totals": document["totals"],
        "group": document["groups"][0],
        "stores": document["stores"][0],
        "reference": document["references"][0],
        "holding": document["holding"][0],
    }
    parts["rank"] += parts["... if it has to do with shared memory"]
    parts["rank"] += parts["... if it has answered"] + parts["... if it has told its variables"]
    parts["process"] += parts["rank"]
    for part, value in emitted.items():
        told = set(re.findall(r"`(\w+)`", parts[part]))
        assert value.keys() <= told, part
        seldom = {
            "devices",
            "with",
            "shape",
            "dtype",
            "device",
            "length",
            "growth",
            "estimate",
            "objects",
            "grown",
            "growth_exact",
            "grown_exact",
            "since_first",
            "since_run",
            "references_ended",
            "opened",
            "chosen",
            "children",
            "without_rss",
            "restarted",
        }
        if part != "process":
            absent = told - value.keys() - seldom - WORDS
            assert not absent, part


@pytest.mark.slow
def test_a_limit_is_an_error_of_the_endpoint_and_what_was_held_is_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_MEMORY_LIMIT", "300MX")
    with pytest.raises(
        UsageError, match="MESHRT_MEMORY_LIMIT: '300MX' is not a size; expected a number of bytes, or one"
    ):
        proc_mesh(n=1)
    monkeypatch.setenv("MESHRT_MEMORY_LIMIT", "400 MiB")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # numpy's library reserves memory for each processor
    holder, pids = holders(3, 1)
    with pytest.raises(ActorError, match=r"holder\.fill\(\) raised on rank 1 .*MemoryError"):
        holder.slice(n=1).fill.call_one().get(WAIT)
    directory = start_root().run.run_directory
    written = max(directory.glob("memory-*.1-*.json"))
    shown = command("--open", str(written), "-n", "1")
    assert (
        "fill() mine  list" in shown and "has tried to allocate more than its MESHRT_MEMORY_LIMIT (400.0 MiB)" in shown
    )
    held = sizes(json.loads(written.read_text()), "self.weights")[1]
    assert close(held["bytes"], 4 * MIB)
    wait_until(lambda: private(pids[1]) < 400 * MIB, WAIT)  # when the frames are gone that the error has passed
    assert holder.pid.call().get(WAIT).values() == pids
    for share in (0.85, 0.95):  # of what makes it too much nobody may hold anything yet at the very moment
        holder.slice(n=0).grow.call_one(int(share * 400 * MIB) - private(pids[0])).get(WAIT)
    wait_until(lambda: list(directory.glob("memory-*.0-1.json")), WAIT)
    near = json.loads((next(directory.glob("memory-*.0-1.json"))).read_text())
    assert rows(near)[0]["note"] == "is near its MESHRT_MEMORY_LIMIT (400.0 MiB)"
    assert sizes(near, "tests.support.holders.CACHE")[0]["bytes"] > 100 * MIB
    assert "expected --open without RUN" in command("--open", str(written), "--watch", code=2)
    for _ in range(4):
        error = next(filter(None, (holder.slice(n=2).grow.call_one(8 * MIB).exception(WAIT) for _ in range(100))))
        assert isinstance(error, MemoryError)
    assert private(pids[2]) < 420 * MIB, "room to say so, once"
    monkeypatch.setenv("MESHRT_MEMORY_LIMIT", "10 MiB")
    meshrt.shutdown_context(0.5)
    with pytest.raises(ProcessDied) as died:
        holders(1, 1)
    said = r"is 10\.0 MiB, and a rank uses \d+\.\d MiB before its actor is created; expected at least "
    assert re.search(said, died.value.log_tail[-1])


@pytest.mark.slow
def test_watching_shows_what_grows_until_the_program_ends() -> None:
    holder, _ = holders(2, 1)
    command = [sys.executable, "-m", "meshrt", "memory", "--vars", "--refs", "--watch", "0.05", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as watching:
        assert watching.stdout is not None and watching.stderr is not None
        try:
            first = json.loads(watching.stdout.readline())
            holder.slice(n=0).grow.call_one(30 * MIB).get(WAIT)
            shared = meshrt.put(np.zeros(MIB, np.uint8))
            growth, cache, put = dict.fromkeys((0, 1), 0), 0, 0
            while growth[0] < 29 * MIB or cache < 29 * MIB or put < MIB:
                look = json.loads(watching.stdout.readline())
                for row in look["ranks"]:
                    growth[row["rank"]] += row.get("growth", 0)
                cache = sizes(look, "tests.support.holders.CACHE").get(0, {}).get("grown", 0)
                put = sum(row.get("grown", 0) for row in look["references"])
            assert growth[1] < 10 * MIB and first["totals"]["ranks"] == 2
            del shared
            meshrt.shutdown_context()
            last = json.loads(watching.stdout.read().splitlines()[-1])
            assert (last["ok"], last["error"]["message"]) == (False, "the program has ended")
            assert watching.stderr.read() == ""
            assert watching.wait(WAIT) == 1
        finally:
            watching.kill()


@pytest.mark.nightly
def test_the_variables_of_the_script_itself(tmp_path: Path) -> None:
    code = (
        "import json, numpy as np, meshrt\nfrom meshrt import proc_mesh\nfrom tests.support.actors import Echo\n"
        "table, small = np.ones(1 << 20), [0]\n"
        "echo = proc_mesh(n=2).spawn('e', Echo).get()\nref = meshrt.put(np.ones(1 << 17), lazy=True)\n"
        "again = echo.echo.call(ref).get().values()"
    )
    with another_program(code) as program:
        pid = str(program.pid)
        document = json.loads(command(pid, "--vars", "--refs", "--json", "--save", str(tmp_path / "then")))
        assert document["script"].startswith("-c import json, numpy as np, meshrt\n")
        found = {row["where"]: row for row in document["variables"] if row["actor"] == "script"}
        assert found.keys() >= {"__main__.table", "__main__.small", "__main__.ref"}
        assert not found.keys() & {"__main__.np", "__main__.proc_mesh", "__main__.json"}, "what it has imported"
        (size,) = found["__main__.table"]["sizes"]
        assert (found["__main__.table"]["mesh_id"], size["ranks"]) == ("", [-1]) and close(size["bytes"], 8 * MIB)
        script = document["processes"][0]
        assert script["kind"] == "script" and script["exact"] and 8 * MIB < script["unique"] < 16 * MIB
        assert document["totals"]["variables"]["ranks"] == 2, "the sums are those of ranks"
        shown = command(pid, "--vars", "--diff", str(tmp_path / "then"), "-n", "4")
        assert re.search(r"^__main__\.table +numpy.ndarray .*= 8\.0 MiB +0 +script$", shown, re.M)
        assert "\nvariables of the script: 8.0 MiB, each byte once" in shown
        assert re.search(r"^script +\d+ .*8\.0 MiB", command(pid, "--vars", "--by", "actor"), re.M)
        shown = command(pid, "--vars", "__main__.table")
        assert "\n__main__.table of the script: 8.0 MiB, each byte once" in shown and "of 0 ranks" not in shown
        (name,) = document["references"][0]["names"]
        # It holds the reference several times: what it was sent back holds it, too.
        shown = command(pid, "--holders", name)
        assert all(
            re.search(rf"^script +script +__main__\.{held} .* {name}$", shown, re.M) for held in ("ref", "again")
        )
        chosen = json.loads(command(pid, "e", "--vars", "--json"))
        assert {row["actor"] for row in chosen["variables"]} == {"e"} and "unique" not in chosen["processes"][0]
        assert program.stdin is not None
        program.stdin.write("\n")
