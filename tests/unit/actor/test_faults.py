"""A failure on its way to the owner of a mesh."""

from __future__ import annotations

from meshrt.actor.faults import Fault, Supervise, mesh_failure
from meshrt.errors import ActorError, ProcessDied, RankPlace, RemoteException
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import body_of
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.tree import TO_RANK, Request

DIED = Fault(RankPlace("m", "", 2, (("hosts", 2),), "node0", 7), Fate("died", signal=9, log_tail=["x"], stack="y"))
RAISED = Fault(RankPlace("m", "trainer", 1), remote=RemoteException("E", "x", "tb", ("note",)), what="step")


def test_it_arrives_at_the_owner_as_it_was_sent() -> None:
    asked = Supervise("boss", "m", "inner", [DIED, RAISED], ["somebody has raised"])
    (frame,) = control_decoder().receive_data(control_frame(Request(1, asked.name(), body_of(asked))))
    request = TO_RANK.decode(frame.payload)
    assert isinstance(request, Request)
    assert Supervise.read(request.arguments) == asked


def test_its_errors_are_those_of_a_call_in_the_order_of_ranks() -> None:
    failure = mesh_failure("m", "inner", [DIED, RAISED], ["somebody has raised"])
    assert [type(error) for error in failure.errors] == [ActorError, ProcessDied]
    assert failure.errors[0].__notes__ == ["somebody has raised"]


def test_it_may_go_without_what_the_rank_has_printed() -> None:
    brief = DIED.without_output().fate
    assert brief is not None and (brief.signal, brief.log_tail, brief.stack) == (9, (), "")
    assert RAISED.without_output() is RAISED
