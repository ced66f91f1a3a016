"""The text of a report, and its file."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from meshrt.errors import MeshError
from meshrt.failure import files
from meshrt.failure.causes import judge
from meshrt.failure.incident import Incident
from meshrt.failure.record import ExceptionFacts, FailureRecord, Frame, Reference
from meshrt.failure.report import details, render, render_record
from meshrt.hooks.facts import IN_SCRIPT, Answered
from meshrt.hooks.fate import Fate
from meshrt.inspect.records import Record, StackFrame, Threads
from meshrt.inspect.tree import Stacks
from meshrt.selection import Shape
from tests.unit.failure.records import MS, death, incident, raised


def last_part(text: str) -> list[str]:
    lines = text.splitlines()
    begin = max(index for index, line in enumerate(lines) if line.startswith("----"))
    return lines[begin + 1 : -1]


def test_the_root_comes_last_and_the_victims_are_grouped() -> None:
    root = raised(37, 10)
    victims = [raised(rank, 11 + rank / 10, "ConnectionResetError", f"peer 37 of {rank}") for rank in range(32, 37)]
    told = [raised(rank, 20, "ActorError", "rank 37", about=Reference("a37.1", "m", 37)) for rank in range(1, 31, 2)]
    text = render(incident(root, *victims, *told, ranks=64, caller="drive.py:31 in main", call="trainer.step()"))
    assert "FAILED 21 of 64 ranks of train (n=64), 10.0 s after its start" in text
    assert "CONSEQUENCES OF THE ROOT CAUSE  20 ranks" in text
    assert "  5 x ConnectionResetError: peer 37 of 32\n      ranks 32-36" in text
    assert ", 4.2 ms after the root cause, in trainer.step()\n" in text
    assert "reason: ConnectionResetError is the error of a rank whose peer has failed (inferred)" in text
    assert "  15 x ActorError: rank 37\n      ranks 1-29:2" in text
    part = last_part(text)
    assert part[0] == "ROOT CAUSE  trainer rank 37 (n=37) on node, pid 137  [inferred: the reasons are above]"
    assert "  what     ValueError: bad batch" in part and part[-1] == "  more     meshrt postmortem cafe0123 --ranks 37"
    assert "  where    trainer.step(), called at drive.py:31 in main" in part


def test_a_host_that_ranks_of_several_meshes_were_on_is_named_as_a_host() -> None:
    lost = replace(death(0, 5, signal=None), kind="host", rank=-1, ranks=(0,), coordinates={})
    whole = incident(lost, replace(lost, mesh_id="m2", mesh="eval"))
    whole.meshes = (*whole.meshes, replace(whole.meshes[0], mesh_id="m2", name="eval"))
    part = last_part(render(whole))
    assert "failed in the same way" in part[0] and part[1] == "  first    host node"


def test_ranks_of_meshes_of_one_name_are_counted() -> None:
    first = death(0, 5)
    whole = incident(first, *(replace(first, mesh_id=f"m{number}") for number in range(2, 5)), ranks=1)
    whole.meshes = tuple(replace(whole.meshes[0], mesh_id=mesh, sizes={}) for mesh in ("m", "m2", "m3", "m4"))
    assert last_part(render(whole))[0].startswith("ROOT CAUSE  rank 0 of train (4 times) failed in the same way")
    assert "meshrt: FAILED the only rank of train, 4 times\n" in render(whole)


def test_a_mesh_of_one() -> None:
    assert "meshrt: FAILED the only rank of train (n=1), 10.0 s after" in render(incident(raised(0, 1), ranks=1))
    alone = incident(raised(0, 1), ranks=1)
    alone.meshes = (replace(alone.meshes[0], sizes={}),)
    assert "meshrt: FAILED the only rank of train, 10.0 s after" in render(alone)


def test_who_did_not_fail_and_when_that_was() -> None:
    """Rank 0 had died before, and the script was told; the stacks are from then."""
    before = death(0, 5, told=6 * MS)
    whole = incident(before, raised(2, 2000), asked=5 * MS, since=1000 * MS, about=(Reference("a2.1", "m", 2),))
    assert "DID NOT FAIL  2 ranks; stacks 2.0 s before the root cause:" in render(whole)
    whole.asked = 1600 * MS
    assert "DID NOT FAIL  2 ranks; stacks at that time:" in render(whole)
    whole.asked = 2900 * MS
    assert "; stacks 900.0 ms after the root cause:" in render(whole)


def test_ambiguous_names_all_candidates() -> None:
    part = last_part(render(incident(raised(0, 7, "KeyError"), raised(2, 9, cleaned_up=5))))
    assert part[0] == "ROOT CAUSE  AMBIGUOUS: one of 2; the order of the failures is not known"
    assert [line for line in part if line.startswith("CANDIDATE")] == [
        "CANDIDATE   trainer rank 0 (n=0) on node, pid 100",
        "CANDIDATE   trainer rank 2 (n=2) on node, pid 102",
    ]


def test_a_root_of_which_nothing_has_come() -> None:
    part = last_part(render(incident(raised(0, 1, "ActorError", about=Reference("x", "m", 2)))))
    assert part[0] == "ROOT CAUSE  rank 2 of train (no record received)"


def test_what_a_process_left() -> None:
    stack = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    stack += '  File "a.py", line 3 in f\n'
    dead = death(1, 5, signal=11, stack=stack, log_tail=tuple(f"line {number}" for number in range(9)))
    part = last_part(render(incident(dead, call="trainer.step()", caller="drive.py:3")))
    assert "  what     was killed by SIGSEGV" in part
    assert "  where    during trainer.step(), called at drive.py:3" in part
    assert '      File "a.py", line 3 in f' in part
    assert part[part.index("  printed  its last 4 lines") + 1] == "    | line 5"


def test_a_long_story_is_cut_and_whole_on_request() -> None:
    deep: ExceptionFacts = ExceptionFacts("E0", "x" * 5000)
    for number in range(1, 9):
        deep = ExceptionFacts(f"E{number}", "", linked=(deep,), notes=("n",) * 3)
    record = raised(1, 1, exception=deep)
    whole = incident(record, *(raised(rank, 5 + rank, f"E{rank}", str(rank)) for rank in range(2, 40)), ranks=64)
    text = render(whole)
    assert len(text.splitlines()) < 60 and max(map(len, text.splitlines())) < 520
    full = render_record(record, whole, judge(whole.records))
    assert "E0: xxx" in full and full.count("E") > 8


def test_the_line_of_the_user_is_shown_below_many_calls_of_libraries() -> None:
    library = [Frame(f"/x/site-packages/torch/{number}.py", number, "forward") for number in range(8)]
    frames = (Frame("train.py", 1, "<module>"), Frame("train.py", 94, "train", "output = model(batch)"), *library)
    record = raised(1, 1, exception=ExceptionFacts("RuntimeError", "shapes", frames=frames))
    part = last_part(render(incident(record)))
    begin = part.index("  stack    (most recent call last)")
    assert part[begin + 1 : begin + 5] == [
        "    ... 1 frame",
        '    File "train.py", line 94, in train',
        "      output = model(batch)",
        "    ... 3 frames of libraries",
    ]
    assert part[begin + 9] == '    File "/x/site-packages/torch/7.py", line 7, in forward'
    assert "line 1, in <module>" in render_record(record, incident(record), judge([record]))


def test_a_long_stack_says_what_is_left_out_of_it() -> None:
    step, down = Frame("train.py", 9, "step", "down(0)"), Frame("train.py", 5, "down", "return down(n + 1)")

    library = [Frame(f"/x/site-packages/torch/{number}.py", number, "forward") for number in range(19)]

    def lines(frames: tuple[Frame, ...], left_out: int) -> list[str]:
        error = ExceptionFacts("RecursionError", "too deep", frames=frames, left_out=left_out)
        return details_of(raised(1, 1, exception=error))

    assert lines((step, *[down] * 59), 924) == [
        '    File "train.py", line 9, in step',
        "      down(0)",
        '    File "train.py", line 5, in down',
        "      return down(n + 1)",
        "      ... 28 more times",
        "    ... 924 frames",
        '    File "train.py", line 5, in down',
        "      return down(n + 1)",
        "      ... 29 more times",
    ]
    below = lines((step, *library), 924)
    assert below[:3] == ['    File "train.py", line 9, in step', "      down(0)", "    ... 938 frames of libraries"]
    above = lines((*[down] * 20, step, *library), 924)
    assert above[:2] == ["    ... 944 frames", '    File "train.py", line 9, in step']
    deep = lines(tuple(Frame("train.py", line, "down") for line in range(8)), 0)
    assert deep[0] == "    ... 2 frames" and deep[-1] == '    File "train.py", line 7, in down' and len(deep) == 7


def test_a_process_that_has_died_in_one_of_many_calls_names_the_first_ones() -> None:
    dead = death(1, 5, exit_code=3, signal=None, doing=tuple(f"a{number}.step()" for number in range(6)))
    assert "  where    during a0.step() or a1.step() or a2.step() or a3.step() or 2 more" in details(dead)


def details_of(record: FailureRecord) -> list[str]:
    """Return the lines of its stack."""
    lines = [*details(record)]
    return lines[lines.index("  stack    (most recent call last)") + 1 :]


def test_of_a_script_that_a_launcher_has_started_no_caller_is_missed() -> None:
    text = render(incident(raised(1, 1, what=IN_SCRIPT, endpoint="", waited_for=False)))
    assert "  where    the script\n" in text and "no caller" not in text


@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_nothing_in_it_acts_on_a_terminal(message: str, name: str, lines: list[str]) -> None:
    error = ExceptionFacts(name, message, notes=tuple(lines))
    fate = Fate("died", signal=9, hint=message, stack=message, log_tail=tuple(lines))
    whole = incident(raised(0, 1, exception=error, fate=fate, what=name), caller=message, call=name)
    text = render(whole) + render_record(whole.records[0], whole, judge(whole.records))
    drives = {"Cc", "Cs", "Zl", "Zp"}
    assert not [each for each in text.replace("\n", "") if unicodedata.category(each) in drives]
    assert not set("\u200e\u200f\u061c\u202d\u202e\u2066\u2069") & set(text)


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)
)
PARTS = st.sampled_from(["records", "meshes", "stacks", "argv", "began", "hang"])


@pytest.mark.slow
@given(ANYTHING)
def test_damaged_stacks_are_said_to_be(stacks: object) -> None:
    plain = stacks if isinstance(stacks, dict) else {"meshes": stacks}
    text = render(Incident.from_plain({**incident(raised(0, 1)).to_plain(), "stacks": plain}))
    assert "ROOT CAUSE" in text


def test_a_file_there_and_back(tmp_path: Path) -> None:
    whole = incident(raised(0, 1), raised(2, 2, "EOFError"), caller="drive.py:3")
    path = files.write(tmp_path, whole)
    assert files.files_of(tmp_path) == [path] and files.read(path) == whole
    document = json.loads(path.read_text())
    assert document["verdict"]["roots"] == [["m", 0, "a0.1"]] and document["report"] == render(whole)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_latest_files_are_kept(tmp_path: Path) -> None:
    for number in range(1, files.KEPT + 4):
        whole = incident(raised(0, 1))
        whole.number = number
        files.write(tmp_path, whole)
    assert [path.name for path in files.files_of(tmp_path)] == [f"failure-{n}.json" for n in range(4, files.KEPT + 4)]
    assert files.files_of(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is cut off or damaged"),
        ('{"schema": "meshrt failure", "version": 1', "is cut off or damaged"),
        ("[" * 100_000, "is cut off or damaged"),
        ("3", "is not a failure file"),
        ("import meshrt", r"is not a failure file of meshrt \(meshrt debug --open opens post-mortem files\)"),
        ('{"schema": "other"}', "is not a failure file"),
        (
            '{"schema": "meshrt failure", "version": 99}',
            "is a failure file of format version 99; this meshrt reads versions 1 and 2: open it with",
        ),
    ],
)
def test_a_file_that_is_none(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "failure-1.json"
    path.write_text(text)
    with pytest.raises(MeshError, match=why):
        files.read(path)


def test_a_file_of_version_1_is_still_read(tmp_path: Path) -> None:
    stacks = Stacks()
    stacks.expect("m", "train", Shape.from_extent({"n": 4}), range(4))
    record = Record("MainThread", "actor", "trainer", "step", "running", [StackFrame("/train.py", 7, "step")])
    stacks.add(Answered("m", (1, 2, 3), Threads([record]), {}))
    whole = incident(death(0, 1), stacks=stacks.answer())
    document = json.loads(files.write(tmp_path, whole).read_text())
    assert document["stacks"]["meshes"][0]["answered"]["ranks"] == [1, 2, 3]
    del document["schema"]
    text = json.dumps({"format": "meshrt failure", **document, "version": 1}).replace("[1, 2, 3]", '"1-3"')
    (tmp_path / "failure-7.json").write_text(text)
    assert "1-3" in text and files.read(tmp_path / "failure-7.json") == files.read(tmp_path / "failure-1.json")


def test_the_command_for_more_works_where_the_program_is_not_found_by_its_id() -> None:
    lost = incident(raised(1, 1), found_by="/tmp/my runs/run-x")
    assert last_part(render(lost))[-1] == "  more     meshrt postmortem '/tmp/my runs/run-x' --ranks 1"
    assert last_part(render(incident(raised(1, 1))))[-1] == "  more     meshrt postmortem cafe0123 --ranks 1"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match="cannot be read: No such file"):
        files.read(tmp_path / "failure-1.json")
    (tmp_path / "failure-2.json").write_bytes(b"\xff\xfe")
    with pytest.raises(MeshError, match="the file is not text"):
        files.read(tmp_path / "failure-2.json")
    os.mkfifo(tmp_path / "failure-3.json")
    with pytest.raises(MeshError, match="is not a failure file"):
        files.read(tmp_path / "failure-3.json")


@pytest.mark.slow
@given(st.dictionaries(PARTS, ANYTHING))
def test_a_file_with_parts_that_are_none_is_shown(parts: dict[str, object]) -> None:
    whole = Incident.from_plain(parts)
    assert render(whole).startswith("====")
