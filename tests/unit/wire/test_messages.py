"""Control messages and errors as plain data; what is foreign is a protocol error."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt import errors
from meshrt.errors import MeshError, ProtocolError, RemoteException, SelectionError, SupervisionError, UsageError
from meshrt.wire.frames import FrameDecoder
from meshrt.wire.messages import (
    Layout,
    check_control,
    control_frame,
    error_from_wire,
    error_to_wire,
    failure_of,
    refusal,
    refused,
    unpack_control,
    why_of,
)

TEXTS = st.text(max_size=20)
REMOTES: st.SearchStrategy[RemoteException] = st.recursive(
    st.builds(RemoteException, TEXTS, TEXTS, TEXTS, st.tuples(TEXTS)),
    lambda inner: st.builds(RemoteException, TEXTS, TEXTS, TEXTS, st.just(()), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("address", [None, ("mesh", 3)])
def test_a_control_message_comes_back_with_its_address(address: tuple[str, int] | None) -> None:
    message = {"t": "ev", "ev": "held", "body": {"held": True, "bytes": b"\0"}}
    (frame,) = FrameDecoder().receive_data(control_frame(message, address))
    assert frame.header == (None if address is None else list(address))
    assert unpack_control(frame.payload) == message


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x01", msgpack.packb([1]), msgpack.packb({}), msgpack.packb({"t": 3}), b"\xdd\xff\xff\xff\xff"],
)
def test_a_foreign_control_message_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_control(payload)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_a_protocol_error(payload: bytes) -> None:
    try:
        assert "t" in unpack_control(payload)
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
            failure_of(foreign)


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
    message = unpack_control(msgpack.packb(refusal(7, error)))
    assert (message["t"], message["id"]) == ("no", 7)
    found = refused(message)
    assert type(found) is expected and str(found) == why_of(error)


@pytest.mark.parametrize(
    "name",
    [None, 3, "KeyError", "RemoteException", "describe_exit", "RUNTIME_FILES", "__doc__", *sorted(errors.__all__)],
)
def test_the_class_of_a_refusal_is_one_of_meshrts_whatever_the_message_says(name: object) -> None:
    error = refused({"t": "no", "id": 1, "why": "because", "error": name})
    assert issubclass(type(error), MeshError)
    assert str(error) == "because"


def test_lists_are_as_long_as_a_mesh_may_be_and_no_longer() -> None:
    ranks = list(range(65536))
    payload: bytes = msgpack.packb({"t": "x", "ranks": ranks})
    assert unpack_control(payload)["ranks"] == ranks
    for announced in (65537, 1 << 20):
        short = b"\x82\xa1t\xa1x\xa5ranks\xdd" + announced.to_bytes(4, "big") + bytes(announced)
        with pytest.raises(ProtocolError):
            unpack_control(short)


def test_a_layout_names_what_was_expected() -> None:
    layout: Layout = {"go": {"id": (int,), "body": (dict, type(None))}, "on": {}}
    check_control({"t": "go", "id": 1, "body": None, "more": [1]}, layout)
    check_control({"t": "on"}, layout)
    for message, expected in (
        ({"t": "no"}, "of type 'no'; expected one of go, on"),
        ({"t": "go", "body": {}}, "has nothing as 'id'; expected int"),
        ({"t": "go", "id": 1, "body": 5}, "has a int as 'body'; expected dict or nil"),
    ):
        with pytest.raises(ProtocolError, match=expected):
            check_control(message, layout)
