"""``--json``: one object for each command, as docs/json.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt import ActorMesh, Future, proc_mesh
from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.show.records import DEBUG
from tests.debug.harness import person
from tests.debug.working import Worker, line_of
from tests.support.documented import documented, keys_of, keys_told
from tests.support.programs import run_python
from tests.support.waiting import wait_until

WAIT = 20


@pytest.fixture
def busy() -> Iterator[tuple[ActorMesh[Worker], Future[Any]]]:
    """Four ranks that wait in recv."""
    mesh = proc_mesh(hosts=2, gpus=2).spawn("worker", Worker).get(WAIT)
    result = mesh.receive.call()
    with person() as me:
        wait_until(lambda: "recv" in me("where"), WAIT)
        yield mesh, result
        me("continue")
        me("p worker self.pair[1].send(b'x')")
    result.get(WAIT)


def records(*commands: str, input: str | None = None, code: int = 0) -> list[dict[str, Any]]:
    arguments = [part for command in commands for part in ("-c", command)]
    done = run_python("-m", "meshrt.debug", "--json", *arguments, input=input)
    assert done.returncode == code, done
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all((record["schema"], record["version"]) == (DEBUG.name, DEBUG.version) for record in found)
    return found


@pytest.mark.usefixtures("busy")
def test_every_command_has_a_record() -> None:
    place = f"working.py:{line_of('compute')}"
    lines = {
        "p": "p worker self.loss",
        "pp": "pp worker ranks(0) self.config",
        "whatis": "whatis worker ranks(0) self.rank",
        "source": "source worker ranks(0) self._train",
        "status": "status",
        "where": "where worker",
        "memory": "memory worker",
        "vars": "vars -n 5 worker ranks(0)",
        "logs": "logs worker",
        "break": f"break {place}",
        "tbreak": f"tbreak {place}",
        "breaks": "breaks",
        "clear": "clear all",
        "postmortem": "postmortem default",
        "interrupt": "interrupt worker ranks(1)",
        "wait": "wait worker ranks(1) 5",
        "list": "list",
        "names": "names",
        "cast": "cast worker ranks(1) p self.rank",
        "attach": "attach worker 1",
        "detach": "detach",
        "continue": "continue",
        "help": "help cast",
        "quit": "quit",
    }
    assert {command.name for command in COMMANDS.offered(Offer.PROMPT)} | {"detach"} == set(lines)
    found = records(*lines.values())
    assert [record["line"] for record in found] == list(lines.values())
    assert [record["command"] for record in found] == [name if name != "detach" else "pdb" for name in lines]
    assert all(record["ok"] for record in found)
    by_name = dict(zip(lines, found, strict=True))
    told, parts = documented()
    for name, record in by_name.items():
        row = told.get("pdb" if name == "detach" else name, "")
        emitted = record.keys() - {"schema", "version", "command", "line", "ok"}
        assert {key for key in emitted if f"`{key}`" not in row} == set(), name
        top = {
            key for key in re.findall(r"`(\w+)`", re.sub(r"`[\[{].*?[\]}]`", "", row)) if key not in ("list", "breaks")
        }
        assert {key for key in top - {"default"} if key not in keys_of(record)} == set(), name
        inner = set(re.findall(r'"(\w+)"', row)) - {"bound", "pending"} - ({"hits"} if name == "clear" else set())
        assert inner - keys_of(record) == set(), name
    stacks = by_name["where"]["meshes"]
    stated = set().union(*(keys_told(keys) for part, keys in parts.items() if not part.startswith("`without`")))
    assert {"mesh_id", "culprits", "frames", "classes", "holder", "lines", "kind"} <= stated
    assert stated - keys_of(stacks) == set()
    for key in keys_of(stacks):
        assert any(f"`{key}`" in text for text in parts.values()), key
    losses = by_name["p"]["answers"]
    assert [(answer["ranks"], answer["facts"]["value"]) for answer in losses] == [([0, 1, 2], 0.25), ([3], None)]
    assert by_name["list"]["rows"][0]["rank"] == 1
    assert by_name["cast"]["answers"] == [
        {
            "actor": "worker",
            "kind": "answered",
            "ranks": [1],
            "text": "1",
            "facts": {"kind": "number", "value": 1.0},
            "failed": False,
        }
    ]
    assert by_name["interrupt"]["answers"][0]["kind"] == "answered"
    assert by_name["where"]["meshes"][0]["trees"][0]["label"] == "worker"
    assert by_name["attach"]["session"]["rank"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
def test_lines_of_standard_input_and_errors() -> None:
    first, second = records(input="# a comment\n\np worker ranks(0) self.rank\np wroker x\nstatus\n", code=1)
    assert first["answers"][0]["text"] == "0"
    assert second["ok"] is False
    assert second["error"]["type"] == "UsageError"
    assert "did you mean 'worker'?" in second["error"]["message"]
    (wrong,) = records("cast worker ranks(0-3) n", code=1)
    assert wrong["error"]["type"] == "SelectionError"
    (missing,) = records("cast worker ranks(0) n", code=1)
    assert missing["answers"] == [
        {"actor": "worker", "kind": "missing", "ranks": [0], "text": "", "facts": None, "failed": False}
    ]
    _, pdb = records("interrupt worker ranks(0)", "attach worker 0")
    assert pdb["command"] == "attach"
    *_, pdb = records("attach worker 0", "p nothing", code=1)
    assert pdb["text"].startswith("*** NameError")
    assert (pdb["rank"], pdb["attached"], pdb["prompt"]) == (0, True, "(Pdb) ")
