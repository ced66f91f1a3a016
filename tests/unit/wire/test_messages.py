"""Control messages and errors as plain data; what is foreign is a protocol error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt import errors
from meshrt.errors import MeshError, ProtocolError, RemoteException, SelectionError, SupervisionError, UsageError
from meshrt.hooks.operations import Data
from meshrt.wire import control, tree
from meshrt.wire.control import Catalogue, Message, control_frame, passed_frame, relayed_frame
from meshrt.wire.errors import error_from_wire, error_to_wire, failure_of, refusal, refused, why_of
from meshrt.wire.frames import FrameDecoder
from meshrt.wire.tree import FROM_RANK, Answer, Event, Refusal
from tests.support.control import plain

TEXTS = st.text(max_size=20)
REMOTES: st.SearchStrategy[RemoteException] = st.recursive(
    st.builds(RemoteException, TEXTS, TEXTS, TEXTS, st.tuples(TEXTS)),
    lambda inner: st.builds(RemoteException, TEXTS, TEXTS, TEXTS, st.just(()), inner),
    max_leaves=5,
)


class Row(Data, frozen=True):
    number: int
    text: str


@pytest.mark.parametrize("address", [None, ("mesh", 3)])
def test_a_control_message_comes_back_with_its_address(address: tuple[str, int] | None) -> None:
    message = Event("held", {"held": True, "bytes": b"\0"})
    (frame,) = FrameDecoder().receive_data(control_frame(message, address))
    assert frame.header == (None if address is None else list(address))
    assert FROM_RANK.decode(frame.payload) == message


def test_a_message_is_passed_on_as_it_was_encoded() -> None:
    sent = control_frame(Event("held", {"held": True}), ("mesh", 3))
    (frame,) = FrameDecoder().receive_data(sent)
    assert relayed_frame(frame.payload, ("mesh", 3)) == sent
    assert relayed_frame(frame.payload) == control_frame(Event("held", {"held": True}))


@pytest.mark.parametrize("length", [10, 1000])
def test_what_a_rank_sends_is_passed_on_as_it_came_if_it_is_short(length: int) -> None:
    """What is short cannot be nested too deep; a long message is encoded anew, which is refused for one that is."""
    message = Event("held", {"text": "x" * length})
    odd = msgpack.packb({"t": "ev", "ev": "held", "body": message.body, "further": 1})
    (frame,) = FrameDecoder().receive_data(passed_frame(message, odd, ("m", 3)))
    assert frame.header == ["m", 3]
    assert FROM_RANK.decode(frame.payload) == message
    assert (bytes(frame.payload) == odd) == (length == 10)


def test_the_parts_of_a_long_message_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is encoded twice; a listing of a thousand ranks has as many rows."""
    rows = [Row(number, "x" * 20) for number in range(100)]
    converted: list[object] = []

    def plain_part(part: object) -> object:
        converted.append(part)
        return msgspec.to_builtins(part)

    monkeypatch.setattr(control, "_plain", plain_part)
    (frame,) = FrameDecoder().receive_data(control_frame(Answer(1, {"rows": rows})))
    assert FROM_RANK.decode(frame.payload) == Answer(1, {"rows": [msgspec.to_builtins(row) for row in rows]})
    assert len(converted) == 100


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x01", msgpack.packb([1]), msgpack.packb({}), msgpack.packb({"t": 3}), b"\xdd\xff\xff\xff\xff"],
)
def test_a_foreign_control_message_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        FROM_RANK.decode(payload)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_a_protocol_error(payload: bytes) -> None:
    try:
        assert isinstance(FROM_RANK.decode(payload), Message)
    except ProtocolError:
        pass


@given(REMOTES)
def test_an_error_comes_back_with_its_causes(remote: RemoteException) -> None:
    assert error_from_wire(msgpack.unpackb(msgpack.packb(error_to_wire(remote)))) == remote


def test_a_chain_of_causes_is_cut() -> None:
    remote = RemoteException("E0", "", "")
    for index in range(1, 100):
        remote = RemoteException(f"E{index}", "", "", cause=remote)
    chain = error_to_wire(remote)
    assert len(chain) == 20 and chain[0][0] == "E99"


@pytest.mark.parametrize(
    "chain", [[], [1], [["a"]], [["a", "b", "c", 3, ""]], [None], [["a", "b", "c", []]], [["a", "b", "c", [], "", 5]]]
)
def test_a_foreign_error_is_refused(chain: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        error_from_wire(chain)


def test_the_number_of_a_failure_is_read_alone() -> None:
    cause = RemoteException("KeyError", "k", "", failure="other")
    assert failure_of(error_to_wire(RemoteException("ValueError", "v", "", cause=cause, failure="7.1"))) == "7.1"
    foreign: list[Any]
    for foreign in ([], [1], [["a", "b", "c", []]]):
        with pytest.raises(ProtocolError):
            failure_of(foreign)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UsageError("no such thing"), UsageError),
        (SelectionError("wrong", text="ranks(", span=(0, 5), expected=("a rank",)), SelectionError),
        (errors.SpawnError("full"), errors.SpawnError),
        (UsageError(), UsageError),
        (SupervisionError(errors.RankPlace("m", "a", 3)), MeshError),
        (KeyError("x"), MeshError),
    ],
)
def test_a_refusal_keeps_its_text_and_the_class_where_it_can(error: Exception, expected: type[MeshError]) -> None:
    message = Catalogue(Refusal).convert(plain(refusal(7, error)))
    assert message.id == 7
    found = refused(message)
    assert type(found) is expected and str(found) == why_of(error)


@pytest.mark.parametrize(
    "name",
    ["", "KeyError", "RemoteException", "describe_exit", "RUNTIME_FILES", "__doc__", *sorted(errors.__all__)],
)
def test_the_class_of_a_refusal_is_one_of_meshrts_whatever_the_message_says(name: str) -> None:
    error = refused(Refusal(1, "because", name))
    assert issubclass(type(error), MeshError)
    assert str(error) == "because"


def test_lists_are_as_long_as_a_mesh_may_be_and_no_longer() -> None:
    ranks = list(range(65536))
    payload: bytes = msgpack.packb({"t": "ok", "id": 1, "body": {"ranks": ranks}})
    assert FROM_RANK.decode(payload) == Answer(1, {"ranks": ranks})
    for announced in (65537, 1 << 20):
        head = b"\x83\xa1t\xa2ok\xa2id\x01\xa4body\x81\xa5ranks\xdd"
        with pytest.raises(ProtocolError, match="not msgpack"):
            FROM_RANK.decode(head + announced.to_bytes(4, "big") + bytes(announced))


EVERY: tuple[type[Message], ...] = tuple(
    dict.fromkeys(
        message
        for union in (tree.FromRank, tree.ToRank, tree.FromRoot, tree.FromAgent, tree.ToTerminal)
        for message in get_args(union)
    )
)


class Go(Message, frozen=True, tag="go"):
    id: int
    pairs: Sequence[tuple[str, int]] = ()


class On(Message, frozen=True, tag="on"):
    data: bytes = b""


def test_a_catalogue_names_what_was_expected() -> None:
    catalogue: Catalogue[Go | On] = Catalogue(Go | On)
    assert catalogue.convert({"t": "go", "id": 1, "pairs": [["a", 2]], "more": [1]}) == Go(1, [("a", 2)])
    assert catalogue.convert({"t": "on"}) == On()
    for fields, expected in (
        ({"t": "no"}, "of type 'no'; expected one of go, on"),
        ({"t": "go"}, "of type 'go': Object missing required field `id`"),
        ({"t": "go", "id": "1"}, r"of type 'go': Expected `int`, got `str` - at `\$.id`"),
        ({"t": "on", "data": "aGVsbG8="}, r"Expected `bytes`, got `str` - at `\$.data`"),
        ({"t": "go", "id": 1, "pairs": [["a", 2], ["b"]]}, r"got 1 - at `\$.pairs\[1\]`"),
    ):
        with pytest.raises(ProtocolError, match=expected):
            catalogue.convert(fields)


def test_no_two_messages_of_a_catalogue_have_one_name() -> None:
    class Again(Message, frozen=True, tag="go"):
        pass

    with pytest.raises(ValueError, match="'go'"):
        Catalogue(Go | Again)


def test_what_a_message_cannot_carry_is_an_error_of_the_sender() -> None:
    with pytest.raises(TypeError, match="a set in a control message"):
        control_frame(Event("held", {"ranks": {1}}))
    with pytest.raises(ProtocolError, match=r"\(ev\) that cannot be encoded"):
        control_frame(Event("held", {"n": 1 << 70}))


def _may_hold_anything(part: Any) -> bool:
    if isinstance(part, msgspec.inspect.AnyType):
        return True
    inside = [getattr(part, name, ()) for name in ("types", "item_types", "fields")]
    parts = [each for group in inside for each in group]
    parts += [getattr(part, name) for name in ("item_type", "key_type", "value_type", "type") if hasattr(part, name)]
    return any(_may_hold_anything(each) for each in parts)


@pytest.mark.parametrize("message", EVERY, ids=lambda message: message.__name__)
def test_a_message_that_may_hold_anything_says_so(message: type[Message]) -> None:
    assert _may_hold_anything(msgspec.inspect.type_info(message)) == message.any_depth
