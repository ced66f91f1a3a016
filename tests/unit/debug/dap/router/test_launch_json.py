from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.dap.router.launch_json import _blanked, _with_entry, adapter_entry, entry, shown, write_launch_json
from meshrt.errors import UsageError

PERSONS = """{
    // Use IntelliSense to learn about possible attributes: "configurations": [
    "version": "0.2.0",
    "inputs": [{"configurations": [1]}], /* not these, */
    "configurations": [
        {
            "name": "mine", // ]
            "args": ["a,]", "//", "\\"/*"],
        },
        {
            "name": "meshrt",
            // the trainers alone
            "meshRanks": "ranks(0:4)",
            "connect": {"host": "127.0.0.1", "port": 1}, // old
            "justMyCode": false,
        },
    ],
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".vscode" / "launch.json"


def read(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(_blanked(path.read_text()))["configurations"]
    return found


def test_a_new_file(tmp_path: Path, path: Path) -> None:
    assert write_launch_json(tmp_path, entry(5678, "t")) == path
    assert json.loads(path.read_text()) == {"version": "0.2.0", "configurations": [entry(5678, "t")]}
    assert json.loads(shown(entry(5678, "t"))) == entry(5678, "t")
    # It has the token in it.
    assert path.stat().st_mode & 0o777 == 0o600
    # Nothing to do, nothing done: an editor that has it open asks nobody whether to load it again.
    os.utime(path, (1, 1))
    write_launch_json(tmp_path, entry(5678, "t"))
    assert path.stat().st_mtime == 1
    write_launch_json(tmp_path, entry(5679, "t"))
    assert read(path) == [entry(5679, "t")] and path.stat().st_mtime != 1


def test_a_file_that_is_kept_elsewhere(tmp_path: Path, path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text('{"configurations": []}')
    path.parent.mkdir()
    path.symlink_to("../kept.json")
    write_launch_json(tmp_path, entry(7, "t"))
    assert path.is_symlink() and read(kept) == [entry(7, "t")]
    assert kept.stat().st_mode & 0o777 == 0o600, "there is a token in it now"


@pytest.mark.parametrize(("begin", "end"), [("", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_what_a_person_has_written_stays(tmp_path: Path, path: Path, begin: str, end: str) -> None:
    path.parent.mkdir()
    path.write_bytes((begin + PERSONS.replace("\n", end)).encode())
    write_launch_json(tmp_path, entry(7, "new"))
    edited = path.read_bytes().decode()
    assert edited.startswith(begin + "{")
    mine, ours = read(path)
    assert mine == {"name": "mine", "args": ["a,]", "//", '"/*']}
    assert ours == {**entry(7, "new"), "meshRanks": "ranks(0:4)", "justMyCode": False}
    for line in PERSONS.split("\n"):
        if '"connect"' not in line:
            assert f"{line}{end}" in edited, line
    assert "// old" in edited
    write_launch_json(tmp_path, entry(7, "new"))
    assert path.read_bytes().decode() == edited


def test_the_entry_is_added(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir()
    for before in (
        "",
        " \n",
        "\ufeff",
        '{"configurations": []}',
        '{"configurations": [ // none yet\n]}',
        '{"configurations":[,],}',
    ):
        path.write_text(before)
        write_launch_json(tmp_path, entry(7, "t"))
        assert read(path) == [entry(7, "t")], before
    path.write_text('{"configurations": [{"name": "a"}, 5]}')
    write_launch_json(tmp_path, entry(7, "t"))
    assert read(path) == [entry(7, "t"), {"name": "a"}, 5]
    path.write_text('{"configurations": [{"name": "meshrt"}]}')
    write_launch_json(tmp_path, entry(7, "t"))
    assert {**read(path)[0], "justMyCode": True} == entry(7, "t")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "is not a launch.json (Expecting"),
        (b"[]", "it is not an object"),
        (b"{}", "it has no list 'configurations'"),
        (b'{"configurations": {}}', "'configurations' is not a list"),
        (b'{"x": {"configurations": []}}', "it has no list 'configurations'"),
        (b'\xff\xfe{"configurations": []}', "is not a launch.json ("),
        (b"[" * 100_000, "is not a launch.json ("),
        (b'{"configurations": [{"name": "meshrt"}]} // \xe9', "is not a launch.json ("),
    ],
)
def test_garbage_is_left_alone(tmp_path: Path, path: Path, text: bytes, complaint: str) -> None:
    path.parent.mkdir()
    path.write_bytes(text)
    with pytest.raises(UsageError) as caught:
        write_launch_json(tmp_path, entry(7, "t"))
    assert complaint in str(caught.value) and str(path) in str(caught.value)
    assert path.read_bytes() == text
    with pytest.raises(UsageError, match="there is no folder"):
        write_launch_json(tmp_path / "nowhere", entry(7, "t"))


_NAMES = st.text('ab"\\/*,]}{[:\n', max_size=5)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_WAYS = ("connect", "meshToken", "listen", "debugAdapterPython", "debugAdapterPath")
_OURS = st.sampled_from(["name", "type", "meshRanks", *_WAYS])
_ENTRIES = st.dictionaries(_OURS | _NAMES, _VALUES, max_size=4)
_ENTRY = _ENTRIES | _ENTRIES.map(lambda known: {**known, "name": "meshrt"})


@given(
    st.dictionaries(_NAMES, _VALUES, max_size=3),
    st.lists(_ENTRY, max_size=3),
    st.sampled_from([None, 1, "\t"]),
    st.sampled_from([entry(7, "t"), adapter_entry()]),
)
def test_any_document(
    others: dict[str, object], entries: list[dict[str, object]], indent: int | str | None, wanted: dict[str, object]
) -> None:
    document = {**others, "configurations": entries}
    edited = _with_entry(json.dumps(document, indent=indent), wanted)
    found = json.loads(_blanked(edited))
    assert {key: value for key, value in found.items() if key != "configurations"} == others
    first = next((at for at, known in enumerate(entries) if known.get("name") == "meshrt"), None)
    if first is None:
        assert found["configurations"] == [wanted, *entries]
    else:
        ours = {key: value for key, value in wanted.items() if key != "justMyCode"}
        kept = {key: value for key, value in entries[first].items() if key not in _WAYS}
        assert found["configurations"] == [*entries[:first], {**kept, **ours}, *entries[first + 1 :]]
    assert _with_entry(edited, wanted) == edited


def test_the_way_changes_and_comments_stay(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir()
    path.write_text(
        """{
    "configurations": [
        {
            "name": "meshrt", // mine
            "connect": {"host": "127.0.0.1", "port": 5678},
            "type": "debugpy",
            "request": "attach", // the last before the token
            "meshToken": "t", // of one program
        }
    ]
}"""
    )
    write_launch_json(tmp_path, adapter_entry())
    text = path.read_text()
    assert "connect" not in text and "meshToken" not in text
    assert all(comment in text for comment in ("// mine", "// the last before the token", "// of one program"))
    (found,) = json.loads(_blanked(text))["configurations"]
    assert found == {key: value for key, value in adapter_entry().items() if key != "justMyCode"}
    # ... and back.
    write_launch_json(tmp_path, entry(7, "t"))
    assert "listen" not in path.read_text() and "debugAdapter" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
