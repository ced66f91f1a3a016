"""The first bytes of a connection to a data port, however they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import ProtocolError
from meshrt.wire.preface import PREFACE_MAX, PrefaceReader, preface

NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=PREFACE_MAX - 9)


@given(NAMES, st.lists(st.integers(1, 20), min_size=1))
def test_it_is_read_in_any_pieces_and_no_byte_more(name: str, sizes: list[int]) -> None:
    data = preface(name)
    assert len(data) <= PREFACE_MAX
    reader = PrefaceReader()
    read = 0
    while reader.missing:
        size = min(sizes[read % len(sizes)], reader.missing)
        assert not reader.name
        reader.receive_data(data[read : read + size])
        read += size
    assert (reader.name, read) == (name, len(data))


@given(st.binary(min_size=1, max_size=PREFACE_MAX))
def test_other_bytes_are_refused_or_a_preface(data: bytes) -> None:
    reader = PrefaceReader()
    try:
        while data and reader.missing:
            part, data = data[: reader.missing], data[reader.missing :]
            reader.receive_data(part)
    except ProtocolError:
        pass


def test_what_is_refused() -> None:
    with pytest.raises(ProtocolError, match="does not speak this protocol"):
        PrefaceReader().receive_data(b"GET / HTT")
    reader = PrefaceReader()
    reader.receive_data(preface("ab")[:-2])
    with pytest.raises(ProtocolError, match="not ASCII"):
        reader.receive_data(b"\xff\xff")
    for size in (b"\xff", b"\0"):
        with pytest.raises(ProtocolError, match="expected 10 to 128"):
            PrefaceReader().receive_data(preface("ab")[:8] + size)
    for name in ("", "x" * PREFACE_MAX):
        with pytest.raises(ProtocolError, match="empty, or longer than 119 bytes"):
            preface(name)
