"""``memory`` and ``vars`` at the prompt, the variables of stopped stack frames among them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meshrt
from meshrt import ActorMesh, proc_mesh
from tests.debug.harness import Person, person
from tests.support.holders import MIB, Holder

WAIT = 30


@pytest.fixture
def halted() -> Iterator[tuple[Person, ActorMesh[Holder]]]:
    """Three ranks, of which rank 1 stands at a breakpoint."""
    holder = proc_mesh(n=3).spawn("holder", Holder).get(WAIT)
    result = holder.slice(n=1).halt.call_one()
    with person() as me:
        me.wait("holder", "ranks(1)")
        yield me, holder
        me("continue")
    result.get(WAIT)


def row(shown: str, begin: str) -> str:
    return next(" ".join(line.split()) for line in shown.splitlines() if line.startswith(begin))


@pytest.mark.slow
def test_memory_of_ranks_and_variables_of_frames(halted: tuple[Person, ActorMesh[Holder]]) -> None:
    me, _ = halted
    shown = me("memory holder")
    assert "stopped (at holders.py:" in row(shown, "1 n=1") and row(shown, "0 n=0")
    assert row(me("memory -n 1"), "1 n=1") and "+2 more, " in me("memory -n 1")
    shown = me("vars holder")
    assert "bytearray len 3145728 = 3.0 MiB 1" in row(shown, "holders.py:") and "halt() local" in shown
    assert row(shown, "self.weights") == "self.weights numpy.ndarray 4194304 uint8 = 4.0 MiB [0-2] x3 same self.view"
    assert "PSS  " not in shown, "vars shows no table of ranks"
    assert "halt() local" not in me("vars holder ranks(0,2)")
    for frames in (False, True):
        kinds = {each["kind"] for each in meshrt.memory(variables=True, frames=frames)["variables"]}
        assert ("local" in kinds) == frames and "attribute" in kinds
    shown = me("vars self.batches ranks(1)")
    assert row(shown, "self.batches[0]") == "self.batches[0] (+9 alike) bytes len 1048576 = 1.0 MiB 1"
    assert row(me("vars -n 3 holder self.batches"), "self.batches[0]").endswith("[0-2] x3 same")
    frame = next(line for line in me("vars holder").splitlines() if "halt() local" in line).partition("  ")[0]
    assert row(me(f"vars {frame}"), "holders.py:").endswith("bytearray len 3145728 = 3.0 MiB 1")
    assert row(me("vars --by type"), "bytearray").startswith("bytearray 1 = 3.0 MiB")
    assert "DTYPE" in me("memory --by dtype") and "VARIABLE" in me("memory --vars --exact") and me.ok
    for line, complaint in (
        ("vars --sort growth", "--sort growth needs --diff or --watch of meshrt memory, in a shell"),
        ("vars --by callsite", "memory --by callsite"),
        ("vars --by nothing", "expected one of host, actor, type, dtype, rank"),
        ("memory -n 0", "expected 1 or more"),
        ("vars hodler", "did you mean 'holder'"),
        ("vars self.btaches ranks(1)", "no variable 'self.btaches'; did you mean 'self.batches'?"),
        ("memory self.batches", "'self.batches' is not a valid name of an actor"),
    ):
        assert complaint in me(line) and not me.ok, line


def test_what_is_assigned_at_the_prompt_is_measured_and_stays(halted: tuple[Person, ActorMesh[Holder]]) -> None:
    me, _ = halted
    me("attach holder 1")
    me("local = bytearray(6 << 20); extra = bytes(7 << 20)")
    for frame in ("", "u", "d"):
        if frame:
            me(frame)
        shown = me("vars holder ranks(1)")
        assert "= 6.0 MiB 1" in row(shown, "holders.py:") or "= 7.0 MiB 1" in row(shown, "holders.py:"), frame
        assert "halt() local" in shown and "= 3.0 MiB" not in shown
    for line in ("vars ranks(1)", "vars -n 1 ranks(1)", "vars --exact", "vars self.batches ranks(1)", "mem ranks(1)"):
        assert ("VARIABLE" in me(line)) == line.startswith("vars") and me.ok, line
    for word, shown in (("memory", "RSS"), ("vars", "VARIABLE"), ("status", "ranks alive")):
        assert shown in me(word)
        me(f"{word} = {{'x': 5}}")  # from now on it is a variable of the stack frame
        assert me(word) == "{'x': 5}\n" and me(f"{word}['x']") == "5\n"
    assert str(6 * MIB) in me("p len(local)")
    assert str(7 * MIB) in me("p len(extra)")
    me("detach")
