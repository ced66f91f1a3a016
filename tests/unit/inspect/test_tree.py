"""Merging stacks: the same as counting them one by one."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshrt.hooks.facts import Answered, Unanswered, Wait
from meshrt.inspect.classes import MeshStacks, Node
from meshrt.inspect.fitting import BUDGET
from meshrt.inspect.merged import MergedStacks, RankClass, StackNode
from meshrt.inspect.operations import Where
from meshrt.inspect.records import Record, StackFrame, Threads, Times
from meshrt.inspect.text import render_stacks
from meshrt.inspect.tree import StackAnswer, Stacks, innermost
from meshrt.program.waits import Waiter
from meshrt.program.words import silence
from meshrt.selection import Shape
from meshrt.wire.frames import CONTROL_MAX

SHAPE = Shape.from_extent({"hosts": 2, "gpus": 4})
RANKS = range(8)

frames = st.lists(
    st.tuples(st.sampled_from(["a.py", "b.py"]), st.integers(1, 2), st.sampled_from("fg"), st.booleans()), max_size=4
)
threads = st.builds(
    Record,
    name=st.sampled_from(["MainThread", "Thread-1 (load)"]),
    kind=st.just("actor"),
    actor=st.sampled_from(["one", "two"]),
    endpoint=st.just("step"),
    state=st.sampled_from(["blocked", "running", "idle"]),
    frames=frames.map(lambda each: [StackFrame(*frame) for frame in each]),
    holder=st.sampled_from(["", "recv"]),
)
answers = st.dictionaries(st.sampled_from(list(RANKS)), st.lists(threads, max_size=3), min_size=1)


def merged(by_rank: dict[int, list[Record]], *, verbose: bool = False) -> MeshStacks:
    """Merge: equal answers as one group, as the agents do it."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for rank, records in by_rank.items():
        groups[msgspec.json.encode(records)].append(rank)
    stacks = Stacks(verbose=verbose)
    stacks.expect("m", "mesh", SHAPE, RANKS)
    for ranks in groups.values():
        records = by_rank[ranks[0]]
        per = {rank: Times([float(rank)] * len(records), [0.0] * len(records)) for rank in ranks}
        stacks.add(Answered("m", tuple(ranks), Threads(records), per))
    return stacks.meshes["m"]


def below(node: Node) -> list[Node]:
    return [node, *(each for child in node.children.values() for each in below(child))]


@pytest.mark.slow
@given(answers)
def test_each_prefix_has_the_ranks_that_share_it(by_rank: dict[int, list[Record]]) -> None:
    expected: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    leaves: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for rank, records in by_rank.items():
        for record in records:
            shown = [(frame.file, frame.line, frame.function) for frame in record.frames if not frame.hidden]
            if record.state == "running" and shown:
                shown[-1] = (shown[-1][0], 0, shown[-1][2])  # it moves: its line is none
            path: tuple[Any, ...] = (record.actor,)
            expected[path].add(rank)
            for index, frame in enumerate(shown):
                moves = record.state == "running" and index == len(shown) - 1
                path += ((*frame, moves),)
                expected[path].add(rank)
            leaves[(*path, record.state, record.holder)].add(rank)

    mesh = merged(by_rank)
    found: dict[tuple[Any, ...], set[int]] = {}
    found_leaves: dict[tuple[Any, ...], set[int]] = {}

    def walk(node: Node, path: tuple[Any, ...]) -> None:
        found[path] = node.ranks
        for (state, holder, _), leaf in node.leaves.items():
            found_leaves[(*path, state, holder)] = leaf.ranks
        for (file, function, line, moves), child in node.children.items():
            walk(child, (*path, (file, line, function, moves)))

    for (_, label), tree in mesh.trees.items():
        walk(tree.root, (label,))
    assert found == expected
    assert found_leaves == leaves


@pytest.mark.slow
@given(answers)
def test_text_and_plain_data_say_every_rank(by_rank: dict[int, list[Record]]) -> None:
    mesh = merged(by_rank)
    stacks = Stacks()
    stacks.meshes["m"] = mesh
    found = stacks.answer()
    assert Where.read_answer(msgpack.unpackb(packed(found))) == found
    assert Where.read_answer(json.loads(json.dumps(msgspec.to_builtins(found)))) == found
    (plain,) = found.meshes
    assert set(plain.answered.ranks) == set(by_rank)
    assert set(plain.waiting.ranks) == set(RANKS) - set(by_rank)
    text = render_stacks(found)
    for tree in mesh.trees.values():
        for node in below(tree.root)[1:]:
            assert f"{node.function}  {node.file}:{node.lines[0]}" in text


@given(answers)
def test_the_largest_comes_first(by_rank: dict[int, list[Record]]) -> None:
    def check(node: StackNode) -> None:
        counts = [child.count for child in node.children]
        assert counts == sorted(counts, reverse=True)
        for child in node.children:
            check(child)

    stacks = Stacks()
    stacks.meshes["m"] = merged(by_rank)
    for tree in stacks.answer().meshes[0].trees:
        check(tree)


def record(*stack: tuple[str, int, str], state: str = "blocked", **more: Any) -> Record:
    frames = [StackFrame(*frame) for frame in stack]
    made = Record("MainThread", "actor", "trainer", "train", state, frames)
    return msgspec.structs.replace(made, **more)


def packed(found: MergedStacks) -> bytes:
    data: bytes = msgpack.packb(msgspec.to_builtins(found))
    return data


TRAIN = ("/home/me/main.py", 88, "train")
REDUCE = ("/home/me/comm.py", 112, "allreduce")
RECV = ("/home/me/chan.py", 77, "recv")


def answered(ranks: range | list[int], *records: Record, since: float = 43.0, cpu: float = 0.0) -> StackAnswer:
    per = {rank: Times([since + rank / 10] * len(records), [cpu] * len(records)) for rank in ranks}
    return Answered("m", tuple(ranks), Threads(records), per)


@pytest.fixture
def stacks() -> Stacks:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"hosts": 8, "gpus": 8}), range(64))
    return made


def test_the_text(stacks: Stacks) -> None:
    odd = [17, 18, 42, 51, 60]
    stacks.add(answered([rank for rank in range(64) if rank not in odd], record(TRAIN, REDUCE, RECV, holder="recv")))
    stacks.add(answered([17, 18], record(TRAIN, ("/home/me/data.py", 30, "next")), since=130))
    stacks.add(answered([42], record(TRAIN, ("/home/me/model.py", 205, "forward"), state="running"), cpu=1.0))
    dump = 'Thread 0x1 (most recent call first):\n  File "/home/me/tok.py", line 9 in encode\n'
    stacks.add(Unanswered("m", (51,), "silent", "", "busy", dump))
    stacks.gone("m", 60, "was killed by SIGKILL")
    text = render_stacks(stacks.answer(), source=lambda _file, line: f"    line {line}\n")
    assert text == "\n".join(
        [
            "64 ranks of mesh1, 62 answered",
            "trainer",
            "  62/64  0-50,52-59,61-63              ├ train  me/main.py:88",
            "  59/64  0-16,19-41,43-50,52-59,61-63  │ ├ allreduce  me/comm.py:112",
            "                                       │ │ recv  me/chan.py:77    blocked 43 s - 49 s in recv",
            "                                       │ │     line 77",
            "   2/64  hosts=2, gpus=1:3             │ ├ next  me/data.py:30    blocked 2 min",
            "                                       │ │     line 30",
            "   1/64  42 (hosts=5, gpus=2)          │ └ forward  me/model.py:205    running, 100 % CPU",
            "                                       │       line 205",
            "   1/64  51 (hosts=6, gpus=3)          └ encode  me/tok.py:9    in C code "
            "<faulthandler: the GIL is held in C>",
            "                                             line 9",
            "   1/64  51 (hosts=6, gpus=3): does not answer: C code holds its GIL",
            "   1/64  60 (hosts=7, gpus=4): was killed by SIGKILL",
            "  likely culprits: 17-18,42,51,60 (at another place than the other 59)",
        ]
    )


def test_one_chain_says_its_ranks_once(stacks: Stacks) -> None:
    stacks.add(answered(range(64), record(TRAIN, REDUCE, RECV), since=0.5))
    lines = render_stacks(stacks.answer(), source=lambda _file, _line: "").splitlines()
    assert lines == [
        "64 ranks of mesh1",
        "trainer",
        "  64/64  all  train  me/main.py:88",
        "              allreduce  me/comm.py:112",
        "              recv  me/chan.py:77    blocked < 1 s - 7 s",
    ]


def test_lines_that_do_not_fit_are_broken_beside_the_branches(stacks: Stacks) -> None:
    stacks.add(answered(range(63), record(TRAIN, REDUCE, holder="self.group.reduce"), since=0.5))
    stacks.add(answered([63], record(TRAIN, ("/home/me/data.py", 30, "next")), since=130))
    lines = render_stacks(stacks.answer(), source=lambda _file, _line: "", columns=75).splitlines()
    assert lines == [
        "64 ranks of mesh1",
        "trainer",
        "  64/64  all                   train  me/main.py:88",
        "  63/64  0-62                  ├ allreduce  me/comm.py:112    blocked < 1 s",
        "                               │     - 7 s in self.group.reduce",
        "   1/64  63 (hosts=7, gpus=7)  └ next  me/data.py:30    blocked 2 min",
        "  likely culprits: 63 (hosts=7, gpus=7) (at another place than the other",
        "    63)",
    ]


def test_on_a_narrow_terminal_the_ranks_have_lines_of_their_own(stacks: Stacks) -> None:
    stacks.add(answered(range(64), record(TRAIN, REDUCE, holder="self.group.reduce"), since=0.5))
    code = "self.total = self.group.reduce(self.total, weights)  # of all"
    lines = render_stacks(stacks.answer(), source=lambda _file, _line: code, columns=50).splitlines()
    assert lines[-5:] == [
        "  64/64  all",
        "    train  me/main.py:88",
        "    allreduce  me/comm.py:112    blocked < 1 s - 7",
        "        s in self.group.reduce",
        "        self.total = self.group.reduce(self.tot...",
    ]


def test_a_thread_that_runs_moves(stacks: Stacks) -> None:
    for rank in range(4):
        stacks.add(answered([rank], record(TRAIN, ("loop.py", 10 + rank, "spin"), state="running")))
    assert "   4/64  hosts=0, gpus=0:4  train  me/main.py:88\n" in render_stacks(stacks.answer())
    assert "spin  loop.py:10-13    running" in render_stacks(stacks.answer())
    assert "  60/64  " in render_stacks(stacks.answer()).splitlines()[-1]


def test_tasks_and_threads_have_trees_of_their_own(stacks: Stacks) -> None:
    records = [
        record(TRAIN),
        record(RECV, kind="task", name="Task-7"),
        record(REDUCE, kind="thread", actor="", name="Thread-3 (load)"),
        record(REDUCE, kind="thread", actor="", name="Thread-4 (load)"),
        record(REDUCE, kind="thread", actor="", name="pool-0_1"),
    ]
    stacks.add(answered(range(64), *records))
    titles = [line for line in render_stacks(stacks.answer()).splitlines()[1:] if not line.startswith(" ")]
    assert titles == ["trainer", "trainer, tasks", "thread load", "thread pool"]


def test_concurrent_calls_at_one_place_can_be_shown_once(stacks: Stacks) -> None:
    def shown(*records: Record) -> list[str]:
        stacks.add(answered(range(64), *records))
        return [line.strip() for line in render_stacks(stacks.answer(), once=True).splitlines()[1:]]

    def task(*path: tuple[str, int, str], state: str = "blocked") -> Record:
        return record(*path, kind="task", name="Task-7", state=state)

    once = shown(record(TRAIN, RECV))
    assert shown(task(TRAIN, RECV), task(TRAIN, RECV)) == once
    more = shown(task(TRAIN, REDUCE))
    assert more[: len(once)] == once and more[len(once)] == "trainer, tasks"
    tasks = " ".join(more[len(once) :])
    assert "allreduce" in tasks and "recv" not in tasks


def test_few_against_few_are_no_outliers() -> None:
    for odd, named in ((0, []), (1, [3]), (2, [])):
        made = Stacks()
        made.expect("m", "mesh1", Shape.from_extent({"n": 4}), range(4))
        made.add(answered(range(4 - odd), record(TRAIN, RECV)))
        made.add(answered(range(4 - odd, 4), record(TRAIN, REDUCE)))
        assert list(made.answer().meshes[0].culprits.ranks) == named


def test_one_rank_of_two_that_is_silent() -> None:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"n": 2}), range(2))
    made.add(answered([0], record(TRAIN)))
    made.add(Unanswered("m", (1,), "silent", "", "stopped", ""))
    assert render_stacks(made.answer()).splitlines()[-1].endswith("1 (n=1) (at another place than the other one)")


def test_nobody_is_a_culprit_where_nobody_answers(stacks: Stacks) -> None:
    stacks.add(Unanswered("m", tuple(range(64)), "silent", "", "stopped", ""))
    stacks.add(Answered("other", (1,), Threads([]), {}))
    text = render_stacks(stacks.answer())
    assert "64/64  all: does not answer: its process was stopped by a signal" in text
    assert "culprits" not in text


def test_a_thousand_different_stacks_fit_into_a_message() -> None:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"n": 1024}), range(1024))
    for rank in range(1024):
        stack = [(f"/home/somebody/of/some/project/module{rank}.py", line, "function") for line in range(20)]
        made.add(answered([rank], record(*stack)))
    found = made.answer()
    assert len(packed(found)) <= BUDGET < CONTROL_MAX / 1.4
    text = render_stacks(found, source=lambda _file, _line: "")
    (shown, left_out) = told(found)[0]
    assert shown > 300 and shown + left_out == 1024 and f"{left_out} further places left out" in text


def classes(node: StackNode) -> list[RankClass]:
    return [*node.classes, *(each for child in node.children for each in classes(child))]


def told(found: MergedStacks) -> list[tuple[int, int]]:
    """Return how many places of each mesh are told, and how many are not."""
    return [
        (len(mesh.without) + sum(len(classes(tree)) for tree in mesh.trees), mesh.left_out) for mesh in found.meshes
    ]


def random_groups(chance: random.Random, ranks: int, groups: int) -> list[list[int]]:
    members = list(range(ranks))
    chance.shuffle(members)
    return [members[start::groups] for start in range(groups)]


@pytest.mark.parametrize("meshes", [1, 5])
def test_a_few_random_groups_are_told_in_full(meshes: int) -> None:
    """As sets they have no short form; each is told once for its chain of frames."""
    made, chance = Stacks(), random.Random(7)
    for mesh in range(meshes):
        made.expect(str(mesh), "mesh1", Shape.from_extent({"hosts": 128, "gpus": 8}), range(1024))
        for number, ranks in enumerate(random_groups(chance, 1024, 4)):
            records = [
                record(
                    *((f"/home/somebody/project/module{number}.py", line, "function") for line in range(40)),
                    kind="thread" if thread else "actor",
                    name=f"thread{'abcde'[thread]}",
                )
                for thread in range(5)
            ]
            per = {rank: Times([1.0] * 5, [0.0] * 5) for rank in ranks}
            made.add(Answered(str(mesh), tuple(ranks), Threads(records), per))
    found = made.answer()
    assert len(packed(found)) <= BUDGET
    assert told(found) == [(20, 0)] * meshes and found.left_out == 0
    assert "left out" not in render_stacks(found, source=lambda _file, _line: "")


@pytest.mark.slow
@given(st.integers(1, 6), st.integers(1, 700), st.integers(1, 60), st.integers(1, 400), st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_whatever_there_is_fits_into_the_budget(meshes: int, groups: int, depth: int, name: int, seed: int) -> None:
    chance = random.Random(seed)
    made = Stacks()
    places = []
    for mesh in range(meshes):
        ranks = chance.choice([8, 64, 1024])
        made.expect(str(mesh), "mesh1", Shape.from_extent({"hosts": ranks // 8, "gpus": 8}), range(ranks))
        for number, members in enumerate(random_groups(chance, ranks, min(groups, ranks))):
            branch = chance.randrange(depth)
            stack = [
                ("x" * name + (f"{number}.py" if line >= branch else ".py"), line, "function") for line in range(depth)
            ]
            if chance.random() < 0.1:
                made.add(Unanswered(str(mesh), tuple(members), "refused", f"{number}: {'why ' * name}"))
            else:
                per = {rank: Times([1.0] * 2, [0.0] * 2) for rank in members}
                records = [record(*stack), record(*stack, kind="thread", name="load")]
                made.add(Answered(str(mesh), tuple(members), Threads(records), per))
        facts = made.meshes[str(mesh)]
        places.append(len(facts.without) + sum(len(tree.root.classes()) for tree in facts.trees.values()))
    found = made.answer()
    assert len(packed(found)) <= BUDGET
    assert [shown + left_out for shown, left_out in told(found)] == places
    text = render_stacks(found, source=lambda _file, _line: "")
    assert text.count("left out") == sum(left_out > 0 for _, left_out in told(found))


@pytest.mark.slow
def test_a_large_mesh_leaves_room_for_a_small_one() -> None:
    made = Stacks()
    made.expect("large", "large", Shape.from_extent({"n": 1024}), range(1024))
    made.expect("small", "small", Shape.from_extent({"n": 2}), range(2))
    for rank in range(1024):
        stack = [(f"/home/somebody/of/some/project/module{rank}.py", line, "function") for line in range(100)]
        made.add(Answered("large", (rank,), Threads([record(*stack)]), {rank: Times([0.0], [0.0])}))
    for rank in range(30):
        wait = Wait("small", "worker", f"step{rank}", (0,), 1)
        made.waits.nodes["large", rank, "worker"] = Waiter("blocked", waits=[wait])
    made.gone("large", 5, "was killed by SIGKILL")
    made.add(Answered("small", (0, 1), Threads([record(TRAIN)]), {}))
    found = made.answer()
    assert len(packed(found)) <= BUDGET and len(found.waits) == 20
    (large, left_out), (small, none) = told(found)
    assert large > 50 and large + left_out == 1025 and (small, none) == (1, 0)
    text = render_stacks(found, source=lambda _file, _line: "")
    assert f"\n  {left_out} further places left out: name an actor or fewer ranks\n" in text
    assert "was killed by SIGKILL" in text  # what cannot be asked for again comes first


def test_more_meshes_than_fit() -> None:
    made = Stacks()
    for number in range(20_000):
        made.expect(f"mesh{number}", f"mesh{number}", Shape.from_extent({"n": 2}), range(2))
    found = made.answer()
    assert len(packed(found)) <= BUDGET
    assert len(found.meshes) > 1000 and len(found.meshes) + found.left_out == 20_000
    last = render_stacks(found).splitlines()[-1]
    assert last == f"{found.left_out} further meshes left out: name an actor or fewer ranks"


def test_a_place_of_which_nothing_is_told_says_so() -> None:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"n": 2}), range(2))
    made.add(answered([0], record(TRAIN, REDUCE)))
    made.add(answered([1], record(TRAIN, RECV)))
    found = made.answer()
    found.meshes[0].trees[0].children.clear()
    assert render_stacks(found).splitlines()[-1] == "  2/2  all  train  me/main.py:88    ..."


def test_one_rank_is_told_by_its_number_and_its_coordinates() -> None:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"hosts": 4, "gpus": 4}), range(16))
    made.add(answered([rank for rank in range(16) if rank != 13], record(TRAIN)))
    made.add(answered([13], record(RECV)))
    text = render_stacks(made.answer(), source=lambda _file, _line: "")
    assert "   1/16  13 (hosts=3, gpus=1)  └ recv" in text
    assert text.splitlines()[-1] == "  likely culprits: 13 (hosts=3, gpus=1) (at another place than the other 15)"
    part = Stacks()
    part.expect("m", "mesh1", Shape.from_extent({"hosts": 4, "gpus": 4}), range(12, 16))
    part.add(answered(range(12, 16), record(TRAIN)))
    assert "  4/4  hosts=3, gpus=*  train" in render_stacks(part.answer())


def test_silence_is_told_in_the_same_words_everywhere(stacks: Stacks) -> None:
    for rank, state in enumerate(("stopped", "busy", "")):
        stacks.add(Unanswered("m", (rank,), "silent", "", state))
    text = render_stacks(stacks.answer())
    for state in ("stopped", "busy"):
        assert f"does not answer: {silence(state)}" in text
    assert f": {silence('')}\n" in text and silence("") == silence("unheard of") == "no answer in time"


def test_the_documentation_names_every_key() -> None:
    """docs/json.md has what scripts read; a real answer of every kind has no other keys."""
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"n": 4}), range(4))
    made.add(answered([0, 1], record(TRAIN, REDUCE)))
    made.add(answered([2], record(TRAIN, RECV, state="running")))
    made.gone("m", 3, "was killed by SIGKILL")
    keys: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            keys.update(value)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(each)

    walk(msgspec.to_builtins(made.answer()))
    documentation = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    _, _, section = documentation.partition("## The stacks of `where`")
    section = section.partition("\n## ")[0]
    assert keys and {key for key in keys if f"`{key}`" not in section} == set()
    # The example is a whole answer: it reads as one, and has the same keys.
    example = json.loads(section.partition("```json")[2].partition("```")[0])
    assert render_stacks(Where.read_answer(example)).startswith("4 ranks of mesh1")
    shown, keys = keys, set()
    walk(example)
    assert keys == shown


def test_the_innermost_place_of_an_actor() -> None:
    idle = record(state="idle", actor="other")
    group = answered([3, 4], idle, record(TRAIN, RECV))
    assert innermost(group, 4, "trainer") == ("recv me/chan.py:77", 43.4, "blocked")
    assert innermost(group, 4, "other") == ("", 0.0, "")
    dump = 'Thread 0x1 (most recent call first):\n  File "/home/me/tok.py", line 9 in encode\n'
    silent = Unanswered("m", (1,), "silent", "", "busy", dump)
    assert innermost(silent, 1, "trainer") == ("encode me/tok.py:9", 0.0, "busy")
    assert innermost(Unanswered("m", (1,), "gone", "was stopped"), 1, "trainer") == ("", 0.0, "")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("loader#0", "loader_0"), ("worker:1", "worker_1"), ("Thread-3 (load)", "Thread-3"), ("plain", "plain")],
)
def test_a_thread_is_found_by_the_name_that_can_be_typed(name: str, wanted: str) -> None:
    own = record(TRAIN, RECV, kind="thread", actor="", name=name)
    group = answered([0], record(TRAIN), own, record(REDUCE, kind="thread", actor="", name="else"))
    for written in (wanted, name):
        made = Stacks(thread=written)
        made.expect("m", "mesh1", Shape.from_extent({"gpus": 1}), range(1))
        made.add(group)
        assert len(made.meshes["m"].trees) == 1 and "recv  me/chan.py:77" in render_stacks(made.answer())
        assert innermost(group, 0, "trainer", written) == ("recv me/chan.py:77", 43.0, "blocked")
    assert innermost(group, 0, "trainer", "nobody") == ("", 0.0, "")


def test_c_code_of_a_further_actor_is_told_by_its_thread() -> None:
    dump = (
        'Thread 0x7 (most recent call first):\n  File "/home/me/tok.py", line 9 in encode\n'
        'Thread 0x1 (most recent call first):\n  File "/home/me/train.py", line 4 in step\n'
    )
    group = Unanswered("m", (0, 1), "silent", "", "busy", dump)
    made = Stacks(actors=lambda mesh_id, rank: {7: "tokens"} if rank else {})
    made.expect("m", "mesh1", Shape.from_extent({"gpus": 2}), range(2))
    made.add(group)
    labels = {(tree.kind, tree.label): sorted(tree.root.ranks) for tree in made.meshes["m"].trees.values()}
    assert labels == {("thread", "without a name"): [0], ("actor", "main thread"): [0, 1], ("actor", "tokens"): [1]}
    assert innermost(group, 1, "tokens", actors={7: "tokens"}) == ("encode me/tok.py:9", 0.0, "busy")
    assert innermost(group, 1, "first", actors={7: "tokens"}) == ("step me/train.py:4", 0.0, "busy")


def test_what_is_known_better_stands_instead_of_one_actors_answer() -> None:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"gpus": 2}), range(2))
    made.instead("m", 1, record(TRAIN, state="stopped", holder="post-mortem: ValueError"))
    made.add(answered([0, 1], record(TRAIN, RECV), record(TRAIN, actor="other")))
    trees = {tree.label: tree for tree in made.meshes["m"].trees.values()}
    found = {leaf.holder: sorted(leaf.ranks) for _, leaf in trees["trainer"].root.classes()}
    assert found["post-mortem: ValueError"] == [1] and [0] in found.values()
    assert trees["other"].root.ranks == {0, 1}


def test_whoever_was_stopped_where_the_others_are_is_no_culprit() -> None:
    made = Stacks()
    made.expect("m", "mesh1", Shape.from_extent({"gpus": 16}), range(16))
    made.add(answered(range(1, 16), record(TRAIN, RECV)))
    made.add(answered([0], record(TRAIN, RECV, state="stopped")))
    assert made.meshes["m"].culprits() == set()
    made.expect("m", "mesh1", Shape.from_extent({"gpus": 16}), range(16))
    made.add(answered(range(1, 16), record(TRAIN, RECV)))
    made.add(answered([0], record(TRAIN, state="stopped")))
    assert made.meshes["m"].culprits() == set()
    made.expect("m", "mesh1", Shape.from_extent({"gpus": 16}), range(16))
    made.add(answered(range(1, 16), record(TRAIN, RECV)))
    made.add(answered([0], record(TRAIN, state="stopped", holder="post-mortem: ValueError")))
    assert made.meshes["m"].culprits() == {0}


def test_whom_others_are_stopped_beside_is_no_culprit_for_that() -> None:
    stops: list[list[int]] = [[], [4, 7], [1, 4, 7]]
    for stopped in stops:
        made = Stacks()
        made.expect("m", "mesh1", Shape.from_extent({"gpus": 12}), range(12))
        made.add(answered([0, 2, 3, 5, 6, 8, 9, 11], record(state="idle")))
        made.add(answered([rank for rank in (1, 4, 7) if rank not in stopped], record(TRAIN)))
        made.add(answered(stopped, record(TRAIN, state="stopped")))
        made.add(answered([10], record(TRAIN, RECV)))
        assert made.meshes["m"].culprits() == {10}
