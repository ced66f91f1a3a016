"""Frames: what is packed comes out again however the bytes are cut, and foreign bytes are refused."""

from __future__ import annotations

import errno
import itertools
import mmap
import tracemalloc
from collections.abc import Iterable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import ProtocolError
from meshrt.wire import frames
from meshrt.wire.frames import (
    CHUNK,
    CONTROL_MAX,
    Frame,
    FrameDecoder,
    Unreceived,
    control_decoder,
    pack_header,
    split_frames,
)

Message = tuple[int, Any, list[bytes]]

HEADERS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.binary(max_size=200), max_size=4)
MESSAGES = st.tuples(st.integers(0, 127), HEADERS, PARTS)


def wire(messages: Iterable[Message]) -> bytes:
    return b"".join(bytes(part) for message in messages for part in split_frames(*message))


def read(data: bytes, cuts: Iterable[int] = (), decoder: FrameDecoder | None = None) -> list[tuple[int, Any, bytes]]:
    """Return what comes out of `read_frames`."""
    return [(frame.kind, frame.header, bytes(frame.payload)) for frame in read_frames(data, cuts, decoder)]


def read_frames(data: bytes, cuts: Iterable[int] = (), decoder: FrameDecoder | None = None) -> list[Frame]:
    """Feed ``data`` cut at these places, the way `meshrt.transport.link` does, and return what came out."""
    decoder = decoder or FrameDecoder()
    found: list[Frame] = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        piece = data[start:end]
        while piece:
            target = decoder.get_buffer()
            if target is None:
                found += decoder.receive_data(piece)
                piece = b""
            else:
                count = min(len(target), len(piece))
                target[:count] = piece[:count]
                found += decoder.buffer_updated(count)
                piece = piece[count:]
    return found


def expected(messages: Iterable[Message]) -> list[tuple[int, Any, bytes]]:
    return [(kind, header, b"".join(parts)) for kind, header, parts in messages]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long messages of a few bytes: chunks of 64 bytes, memory of their own from 32 on."""
    shrink(monkeypatch)


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "CHUNK", 64)
    monkeypatch.setattr(frames, "_DIRECT", 32)
    monkeypatch.setattr(frames, "_ANONYMOUS", 128)


@given(st.lists(MESSAGES, max_size=6), st.lists(st.integers(min_value=0), max_size=10), st.booleans())
def test_what_is_packed_comes_out_however_it_is_cut(messages: list[Message], cuts: list[int], small: bool) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        if small:
            shrink(monkeypatch)
        assert read(wire(messages), cuts) == expected(messages)


@pytest.mark.usefixtures("small_chunks")
def test_messages_that_have_begun_to_come_are_counted_and_not_taken() -> None:
    messages: list[Message] = [(1, [7], []), (2, None, [b"x" * 31]), (3, {}, [b"y" * 150]), (4, [], [b"v" * 64])]
    data = wire(messages)
    ends = list(itertools.accumulate(len(wire([message])) for message in messages))
    begins = [0, *ends[:-1]]
    for read_so_far in range(len(data) + 1):
        decoder = FrameDecoder()
        done = read(data[:read_so_far], decoder=decoder)
        for there in range(read_so_far, len(data) + 1):
            # Those of which a byte has come, without those that were completed.
            expects = sum(begin < there for begin in begins) - len(done)
            assert decoder.begun(data[read_so_far:there]) == expects, (read_so_far, there)
        assert done + read(data[read_so_far:], decoder=decoder) == expected(messages)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.row("N3")
def test_cut_at_every_byte_and_byte_by_byte() -> None:
    messages: list[Message] = [
        (1, [7, "step"], []),
        (2, None, [b"x" * 31]),
        (3, {"a": 1}, [b"y" * 40, b"z" * 100, b"w" * 60]),
        (4, [], [b"v" * 64]),
        (5, "end", [b"u" * 65]),
    ]
    data = wire(messages)
    for cut in range(len(data) + 1):
        assert read(data, [cut]) == expected(messages), cut
    assert read(data, range(len(data))) == expected(messages)


def test_a_real_chunked_message_is_received_in_one_piece() -> None:
    parts = [bytes([index]) * (CHUNK // 2 + 1000 * index) for index in range(1, 4)]
    sent = split_frames(9, ["call"], parts)
    assert sum(map(len, sent)) < sum(map(len, parts)) + 200
    assert any(len(piece) > CHUNK // 3 and isinstance(piece, memoryview) for piece in sent)  # views, no copies
    ((kind, header, payload),) = read(b"".join(sent))
    assert (kind, header) == (9, ["call"]) and payload == b"".join(parts)


def test_small_messages_are_one_buffer_and_large_parts_are_not_copied() -> None:
    assert len(split_frames(1, [], [b"a", b"b"])) == 1
    large = bytes(100_000)
    assert split_frames(1, [], [large])[1] is large


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_changed_bytes_give_frames_or_a_protocol_error(messages: list[Message], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch)
        changed = bytearray(wire(messages))
        for _ in range(data.draw(st.integers(1, 4))):
            index = data.draw(st.integers(0, len(changed) - 1))
            changed[index] ^= data.draw(st.integers(1, 255))
        survives(bytes(changed), data.draw(st.lists(st.integers(min_value=0), max_size=4)))


@given(st.binary(max_size=400), st.lists(st.integers(min_value=0), max_size=4))
def test_foreign_bytes_give_frames_or_a_protocol_error(data: bytes, cuts: list[int]) -> None:
    survives(data, cuts)


def survives(data: bytes, cuts: list[int]) -> None:
    try:
        for kind, _, _ in read(data, cuts, FrameDecoder(1 << 16, 1 << 20)):
            assert 0 <= kind < 128
    except ProtocolError:
        pass


@pytest.mark.row("N5")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff\xff\xff\xff\x01\0\0\0\x01", "is not allowed here"),
        ((CONTROL_MAX + 100).to_bytes(4, "big") + b"\x01\0\0\0\x01", "is not allowed here"),
        (b"\0\0\0\x05\x01\0\0\0\x06", "is not allowed here"),
        (b"\0\0\0\x01\x01\0\0\0\x01\xc1", "not msgpack"),
        (b"\0\0\0\x00\x01\0\0\0\x00", "not msgpack"),
        (b"\0\0\0\x02\x01\0\0\0\x02\x01\x02", "not msgpack"),
        (b"\0\0\0\x05\x01\0\0\0\x05\xdd\x00\xff\xff\xff", "not msgpack"),
        (b"\0\0\0\x06\x01\0\0\0\x06\xc9\xff\xff\xff\xff\x00", "not msgpack"),
        (b"GET / HTTP/1.1\r\n\r\n", "is not allowed here"),
        (b"\0\0\0\x04\x81\0\0\0\x04\0\0\0\0", "without a total"),
        (b"\0\0\0\x0a\x81\0\0\0\x09" + bytes(8) + b"\xc0" + b"x", "of 0 bytes is not allowed"),
        (b"\0\0\0\x0a\x81\0\0\0\x09" + b"\x7f" + bytes(7) + b"\xc0" + b"x", "bytes is not allowed here"),
    ],
)
def test_each_kind_of_nonsense_is_named(data: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        FrameDecoder(CONTROL_MAX + 64).receive_data(data)


def begin_chunked(total: int, part: bytes) -> bytes:
    header = total.to_bytes(8, "big") + b"\xc0"
    return frames._PREFIX.pack(len(header) + len(part), 0x81, len(header)) + header + part


@pytest.mark.parametrize(
    "following",
    [
        pack_header(1, [], 0),
        frames._PREFIX.pack(5, 0x02, 0) + b"x" * 5,
        frames._PREFIX.pack(5, 0x81, 0) + b"x" * 5,
        frames._PREFIX.pack(3, 0x01, 0) + b"x" * 3,
        frames._PREFIX.pack(9, 0x01, 0) + b"x" * 9,
        frames._PREFIX.pack(5, 0x01, 1) + b"\xc0" + b"x" * 4,
        frames._PREFIX.pack(0, 0x81, 0),
    ],
    ids=["other message", "other kind", "more but full", "too short", "too long", "with a header", "empty"],
)
def test_a_chunked_message_must_go_on_as_announced(following: bytes) -> None:
    good = frames._PREFIX.pack(5, 0x01, 0) + b"y" * 5
    assert read(begin_chunked(10, b"x" * 5) + good) == [(1, None, b"xxxxxyyyyy")]
    with pytest.raises(ProtocolError, match="interrupted"):
        FrameDecoder().receive_data(begin_chunked(10, b"x" * 5) + following)


@pytest.mark.row("N5")
def test_an_announced_total_takes_no_memory_before_bytes_come() -> None:
    """Sixty gibibytes announced: address space at most, and nothing of it is touched."""
    tracemalloc.start()
    try:
        decoder = FrameDecoder(max_payload=64 << 20)
        with pytest.raises(ProtocolError):
            decoder.receive_data(begin_chunked(60 << 30, b"x"))
        decoder.receive_data(begin_chunked(60 << 20, b"x"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is memory for payloads of fewer than 100 bytes. The heap refuses more, and the kernel, from 128 on."""
    shrink(monkeypatch)

    class Heap(bytearray):
        def __init__(self, size: int) -> None:
            if size >= 100 + frames._BOUNDARY:
                raise MemoryError
            super().__init__(size)

    class Kernel:
        @staticmethod
        def mmap(_descriptor: int, _size: int) -> None:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(frames, "bytearray", Heap, raising=False)
    monkeypatch.setattr(frames, "mmap", Kernel)


#: Of the second and the fourth the payload is lost; chunks have 64 bytes.
POOR: list[Message] = [
    (1, [7, "step"], []),
    (2, None, [b"x" * 100]),
    (3, {"a": 1}, [b"y" * 70]),
    (4, [8], [b"z" * 90, b"w" * 110]),
    (5, "end", [b"v" * 31]),
]


def lost(payload: Any) -> Any:
    return (payload.size, payload.reason) if isinstance(payload, Unreceived) else bytes(payload)


@pytest.mark.nightly
@pytest.mark.usefixtures("no_memory")
def test_a_payload_without_memory_is_thrown_away_and_the_others_are_received() -> None:
    data = wire(POOR)
    expects = [
        b"",
        (100, "the interpreter is out of memory"),
        b"y" * 70,
        (200, "Cannot allocate memory"),
        b"v" * 31,
    ]
    for cut in range(len(data) + 1):
        for second in range(cut, len(data) + 1):
            found = read_frames(data, [cut, second])
            assert [lost(frame.payload) for frame in found] == expects, (cut, second)
    found = read_frames(data, range(len(data)))
    assert [lost(frame.payload) for frame in found] == expects
    assert [(frame.kind, frame.header) for frame in found] == [(kind, header) for kind, header, _ in POOR]


@pytest.mark.usefixtures("no_memory")
def test_what_is_thrown_away_must_go_on_as_announced() -> None:
    first_chunk = 9 + 8 + len(msgpack.packb([8])) + 64
    with pytest.raises(ProtocolError, match="interrupted"):
        FrameDecoder().receive_data(wire(POOR[3:4])[:first_chunk] + wire(POOR[:1]))


@pytest.mark.usefixtures("no_memory")
def test_a_control_message_without_memory_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    data = wire(POOR)
    for cut in range(len(data) + 1):
        found = read_frames(data, [cut], control_decoder())
        assert [frame.kind for frame in found] == [1, 3, 5]
    texts = [record.message for record in caplog.records]
    assert len(texts) == 2 * (len(data) + 1)
    assert texts[1] == "a control message was lost: a message of 200 bytes was not received: Cannot allocate memory"


def test_an_unfinished_header_is_bounded() -> None:
    """Bytes that are kept until a frame is complete never exceed the largest frame."""
    decoder = FrameDecoder(1000)
    decoder.receive_data(frames._PREFIX.pack(1000, 1, 1000) + msgpack.packb(b"x" * 500)[:400])
    with pytest.raises(ProtocolError):
        FrameDecoder(1000).receive_data(frames._PREFIX.pack(1001, 1, 1000))


def test_a_buffer_update_without_a_payload_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        FrameDecoder().buffer_updated(1)


@pytest.mark.row("S6")
def test_a_payload_beyond_what_32_bits_count() -> None:
    """Of pages that nobody writes to, which cost nothing; only the frames around them are read."""
    size = (4 << 30) + CHUNK + 5
    decoder = FrameDecoder()
    found: list[Frame] = []
    for part in split_frames(7, ["large"], [memoryview(mmap.mmap(-1, size))]):
        left = len(part)
        while left:
            target = decoder.get_buffer()
            if target is None:
                found += decoder.receive_data(bytes(part))
                left = 0
            else:
                count = min(len(target), left)
                found += decoder.buffer_updated(count)
                left -= count
    ((kind, header, payload),) = found
    assert (kind, header, len(payload)) == (7, ["large"], size)
