"""Post-mortem files that are damaged, foreign or hostile, and what can be asked of a good one."""

from __future__ import annotations

import copy
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.dumpfile import SCHEMA, Dump, DumpedError, read_dump
from meshrt.debug.prompt.dumps import DumpPrompt
from meshrt.errors import UsageError

GOOD: dict[str, Any] = {
    "schema": SCHEMA.name,
    "version": SCHEMA.version,
    "mesh": "mesh1",
    "actor": "trainer",
    "rank": 3,
    "coords": {"n": 3},
    "host": "node",
    "pid": 7,
    "time": 1.7e9,
    "endpoint": "step",
    "exception": {"type": "ValueError", "message": "bad", "traceback": "Traceback ...\nValueError: bad", "chain": []},
    "frames": [
        {"file": "/x/a.py", "line": 2, "function": "f", "first_line": 1, "source": ["def f():", "    g()"],
         "locals": {"x": "1"}},
        {"file": "/x/b.py", "line": 5, "function": "g", "first_line": 4, "source": ["def g():", "    raise"],
         "locals": {"self": "<G object>", "self.y": "[2]"}},
    ],
}  # fmt: skip


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_good_file(tmp_path: Path) -> None:
    prompt = DumpPrompt(read_dump(written(tmp_path / "dump.json", GOOD)))
    assert prompt.prompt == "(trainer 3 n=3) "
    assert "trainer.step raised on rank 3" in prompt.greeting()
    assert "> /x/b.py(5)g()\n-> raise" in prompt.greeting()
    assert prompt.execute("p self.y") == "[2]"
    assert prompt.execute("self.y") == "[2]"
    assert prompt.execute("u").startswith("> /x/a.py(2)f()")
    assert prompt.execute("p") == "x = 1"
    assert prompt.execute("u 5") == "*** Oldest frame"
    assert prompt.execute("w").count(".py(") == 2
    assert prompt.execute("l") == "   1   def f():\n   2->     g()"
    assert prompt.execute("d") == prompt.execute("w").splitlines()[2] + "\n-> raise"
    assert prompt.execute("e").endswith("ValueError: bad")
    for wrong in ("p z", "1 + 1", "u x", "wehre"):
        with pytest.raises(UsageError):
            prompt.execute(wrong)
    assert "self.y" in prompt.complete("p se")


def test_several_failures(tmp_path: Path) -> None:
    first = read_dump(written(tmp_path / "dump.json", GOOD))
    error = DumpedError("", "was killed by SIGKILL", "trainer rank 4: a root cause")
    second = Dump("trainer", 4, "node", 8, 1.7e9, "", error, (), what="trainer has failed")
    prompt = DumpPrompt(first, second, report="all of it\n")
    assert prompt.greeting().endswith("`r` shows the 2 failures of this file")
    listed = ["> 1  trainer rank 3: ValueError: bad", "   2  trainer rank 4: was killed by SIGKILL"]
    assert [line.replace(">  ", "> ") for line in prompt.execute("r").splitlines()] == listed
    assert prompt.execute("r 2").startswith("trainer has failed on rank 4 (host node, pid 8)")
    assert prompt.execute("u") == "*** Oldest frame" and prompt.execute("e") == "trainer rank 4: a root cause"
    assert prompt.execute("report") == "all of it"
    with pytest.raises(UsageError, match="there is no failure 3: this file has 2"):
        prompt.execute("r 3")
    assert "has no report" in DumpPrompt(first).execute("report")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("{", "it is not valid JSON"),
        ("[" * 100_000, "it is not valid JSON"),
        ("3", "not a post-mortem file"),
        ("{}", "not a post-mortem file"),
        ({"version": 99}, "has version 99"),
        ({"time": None}, r"damaged: Expected `float`, got `null` - at `\$.time`"),
        ({"time": 1e300}, "Expected `float` < 100000000000"),
        ({"time": math.nan}, r"at `\$.time`"),
        ({"rank": "x"}, "Expected `int`, got `str`"),
        ({"rank": True}, "Expected `int`, got `bool`"),
        ({"coords": [1]}, "Expected `object`, got `array`"),
        ({"exception": 5}, r"at `\$.exception`"),
        ({"exception": {}}, "required field `type`"),
        ({"frames": 5}, r"at `\$.frames`"),
        ({"frames": [1]}, r"at `\$.frames\[0\]`"),
        ({"frames": [{}]}, "required field `file`"),
        ({"frames": [{**GOOD["frames"][0], "line": None}]}, "line`"),
        ({"frames": [{**GOOD["frames"][0], "locals": {"x": 1}}]}, "Expected `str`, got `int`"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Any, problem: str) -> None:
    document = damage if isinstance(damage, str) else {**GOOD, **damage}
    with pytest.raises(UsageError, match=problem):
        read_dump(written(tmp_path / "dump.json", document))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    other = "not a post-mortem file"
    for path, problem in ((tmp_path / "fifo", other), (tmp_path, other),
                          (tmp_path / "none", "No such file"), (Path("/dev/zero"), other)):  # fmt: skip
        with pytest.raises(UsageError, match=problem):
            read_dump(path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not text"):
        read_dump(tmp_path / "bytes")


@given(st.data())
def test_any_damage_is_refused_or_can_be_shown(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    document = copy.deepcopy(GOOD)
    target: Any = document
    for _ in range(data.draw(st.integers(0, 2))):
        inner = [
            value
            for value in (target.values() if isinstance(target, dict) else target)
            if isinstance(value, (dict, list)) and value
        ]
        if not inner:
            break
        target = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
    target[key] = data.draw(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers()), st.floats()))
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    try:
        prompt = DumpPrompt(read_dump(written(path, document)))
    except UsageError:
        return
    prompt.greeting()
    for line in ("w", "l", "ll", "p", "e", "u", "d"):
        prompt.execute(line)
