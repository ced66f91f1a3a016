"""Bytes on links: frames, control messages, errors in them, and both sides of the handshake."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack

from meshrt.errors import AuthenticationError, ProtocolError
from meshrt.store.messages import FROM_PROCESS, FROM_STORE, TO_PROCESS, TO_STORE
from meshrt.wire.code import AskCode, Code
from meshrt.wire.control import Catalogue, Message
from meshrt.wire.errors import error_from_wire, error_to_wire, failure_of
from meshrt.wire.frames import CONTROL_MAX, FrameDecoder, Unreceived, control_decoder, pack_header, split_frames
from meshrt.wire.handshake import MAGIC, ROLE_DATA, ROLE_TOOL, ClientHandshake, Identity, ServerHandshake
from meshrt.wire.meeting import FROM_MEETING, TO_MEETING
from meshrt.wire.messages import CALL, ERROR, RESULT
from meshrt.wire.tree import FROM_AGENT, FROM_RANK, FROM_ROOT, FROM_TERMINAL, INVITED, TO_RANK, TO_TERMINAL
from tests.fuzz.examples import examples_of
from tests.fuzz.mutating import packed
from tests.fuzz.running import BAIT, Target
from tests.support.control import raw_frame

__all__ = ["CATALOGUES", "CONTROL_EXAMPLES", "TARGETS"]

_SECRET = b"s" * 32
#: Beside what it was sent, a decoder holds the payload that was announced (`meshrt.wire.frames`); one of 8 MiB and more
#: takes pages when they are written.
_HEAP = (8 << 20) + (256 << 10)

CONTROL_EXAMPLES: list[dict[str, Any]] = [
    {"t": "op", "id": 3, "op": "inspect.list", "body": {"actor": "trainer", "ranks": "ranks(0)"}},
    {"t": "ok", "id": -3, "body": {"same": {"text": "1", "facts": None}, "per": [1.5, b"x"]}},
    {"t": "no", "id": 3, "why": "there is no such rank", "error": "UsageError"},
    {"t": "ev", "ev": "unhandled", "body": {"actor": "a", "error": {"type": "ValueError", "notes": []}, "when": 1}},
    {"t": "pong"},
]


#: All that there are; each has an example of every message of its own.
CATALOGUES: tuple[Catalogue[Any], ...] = (
    *(FROM_AGENT, FROM_RANK, FROM_ROOT, FROM_TERMINAL, TO_RANK, TO_TERMINAL, INVITED, TO_MEETING, FROM_MEETING),
    *(FROM_PROCESS, TO_PROCESS, FROM_STORE, TO_STORE, Catalogue(AskCode), Catalogue(Code)),
)


def _cuts(data: bytes) -> list[list[bytes]]:
    """Return the same bytes in one piece, bytes by themselves at the beginning, and pieces of odd sizes."""
    head = [data[at : at + 1] for at in range(min(20, len(data)))]
    odd = [data[at : at + 37] for at in range(0, len(data), 37)]
    return [[data], [*head, data[20:]], odd]


def _frames(decoder: FrameDecoder, pieces: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
    for piece in pieces:
        position = 0
        while position < len(piece):
            target = decoder.get_buffer()
            if target is None:
                found, position = decoder.receive_data(piece[position:]), len(piece)
            else:
                count = min(len(target), len(piece) - position)
                target[:count] = piece[position : position + count]
                found, position = decoder.buffer_updated(count), position + count
            for frame in found:
                whole = None if isinstance(frame.payload, Unreceived) else bytes(frame.payload)
                yield frame.kind, repr(frame.header), whole


def _decoded(make: Callable[[], FrameDecoder], data: bytes) -> None:
    """However it comes, the same frames come out, or the same refusal; and next to no memory is taken for it."""
    outcomes = []
    for pieces in _cuts(data):
        decoder, refused = make(), False
        frames: list[tuple[Any, ...]] = []
        try:
            frames.extend(_frames(decoder, pieces))
        except ProtocolError:
            refused = True
        outcomes.append((frames, refused))
    # One that is refused may have had its first frames in the same piece as what was refused.
    assert len({refused for _, refused in outcomes}) == 1
    assert outcomes[0][1] or outcomes[0][0] == outcomes[1][0] == outcomes[2][0]


def _data_link(data: bytes) -> None:
    _decoded(FrameDecoder, data)


def _control_link(data: bytes) -> None:
    _decoded(lambda: control_decoder(), data)
    for frame in _whole(control_decoder(), data):
        _control(frame)


def _whole(decoder: FrameDecoder, data: bytes) -> list[Any]:
    return [payload for _, _, payload in _frames(decoder, [data]) if payload is not None]


def _memory(data: bytes) -> None:
    """What was announced costs nothing before it comes."""
    for make, most in ((FrameDecoder, _HEAP), (control_decoder, CONTROL_MAX + (256 << 10))):
        decoder = make()
        tracemalloc.start()
        try:
            list(_frames(decoder, [data]))
        except ProtocolError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < most + 8 * len(data), peak


def _control(data: bytes) -> None:
    """What a catalogue lets in is a message of it."""
    refusals: list[ProtocolError] = []
    for catalogue in CATALOGUES:
        try:
            assert isinstance(catalogue.decode(data), Message)
        except ProtocolError as error:
            refusals.append(error)
    if len(refusals) == len(CATALOGUES):
        raise refusals[0]


def _error(data: bytes) -> None:
    try:
        chain = msgpack.unpackb(data)
    except Exception:
        return  # which is tried elsewhere
    failure_of(chain)
    error = error_from_wire(chain)
    assert type(error.type) is type(error.message) is type(error.failure) is str
    assert error_to_wire(error)


def _server(data: bytes) -> None:
    """A client that does not know the secret says anything, and is not let in."""
    for pieces in _cuts(data):
        server = ServerHandshake(_SECRET, ROLE_DATA, Identity(1, 2, 3))
        try:
            answers = b"".join(server.receive_data(piece) for piece in pieces)
        except AuthenticationError:
            answers = b""
        assert not server.done and len(answers) <= 64


def _client(data: bytes) -> None:
    """A server that does not know the secret says anything, and is told nothing."""
    for pieces in _cuts(data):
        client = ClientHandshake(_SECRET, ROLE_TOOL, "tool")
        try:
            answers = b"".join(client.receive_data(piece) for piece in pieces)
        except AuthenticationError:
            answers = b""
        assert not client.done and not answers


def _hellos() -> list[bytes]:
    hellos = []
    for secret, role in itertools.product((_SECRET, b"other"), (ROLE_DATA, ROLE_TOOL)):
        client = ClientHandshake(secret, role, "m1/0/trainer")
        hellos.append(client.hello())
    return [*hellos, hellos[0] + bytes(32), MAGIC, hellos[0] + BAIT]


def _answers() -> list[bytes]:
    server = ServerHandshake(b"other", ROLE_TOOL)
    return [server.receive_data(ClientHandshake(_SECRET, ROLE_TOOL, "tool").hello()), bytes(64) + b"\x01", BAIT * 3]


def _data_examples() -> list[bytes]:
    long = bytes(70_000)
    return [
        b"".join(split_frames(CALL, [1, "step", b"view", [3, 4], 0], [b"abc", b"defg"])),
        b"".join(split_frames(RESULT, [1, None], [])) * 3,
        b"".join(split_frames(ERROR, [1, [["E", "m", "t", [], "1"]], [len(BAIT)], 0], [BAIT])),
        b"".join(split_frames(CALL, [2, "s", b"", [len(long)], 0], [long])),
        # In pieces, as one that is longer than a frame may be.
        pack_header(RESULT | 0x80, None, 6)[:-1] + b"",
        _chunked(RESULT, [3, [9]], [b"abc", b"def", b"ghi"]),
    ]


def _chunked(kind: int, header: Any, parts: Sequence[bytes]) -> bytes:
    first = sum(map(len, parts)).to_bytes(8, "big") + packed(header)
    out = b""
    for number, part in enumerate(parts):
        head = b"" if number else first
        more = 0x80 if number < len(parts) - 1 else 0
        length = len(head) + len(part)
        out += length.to_bytes(4, "big") + bytes([kind | more]) + len(head).to_bytes(4, "big") + head + part
    return out


def _control_frames() -> list[bytes]:
    addresses = itertools.cycle((None, ("m1", 3)))
    frames = [raw_frame(message, address) for message, address in zip(CONTROL_EXAMPLES, addresses, strict=False)]
    return [*frames, b"".join(frames), frames[0] + BAIT]


def _control_examples() -> list[bytes]:
    every = [fields for catalogue in CATALOGUES for fields in examples_of(catalogue)]
    return [*map(packed, (*CONTROL_EXAMPLES, *every)), BAIT]


def _chains() -> list[bytes]:
    one = ["ValueError", "bad", "Traceback", ["note"], "1a.2"]
    return [packed([one]), packed([one, ["KeyError", "", "", [], ""]]), packed([["", "", "", [], ""]])]


_REFUSED = (ProtocolError,)
TARGETS = [
    Target("frames", _data_link, _data_examples, _REFUSED, count=8000),
    Target("frames-control", _control_link, _control_frames, _REFUSED, count=8000),
    Target("frames-memory", _memory, lambda: [*_data_examples(), *_control_frames()], _REFUSED, count=1000),
    Target("control", _control, _control_examples, _REFUSED, "msgpack", count=4000),
    Target("errors", _error, _chains, _REFUSED, "msgpack", count=4000),
    Target("handshake-server", _server, _hellos, count=8000),
    Target("handshake-client", _client, _answers, count=8000),
]
