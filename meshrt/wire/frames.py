"""Frames: the unit on every link. Sans-IO: bytes in, frames out.

::

    frame   := u32 length of (header + payload) | u8 kind | u32 header length | header | payload
    header  := one msgpack value
    chunked := frame(kind | MORE, u64 total + header, part) frame(kind | MORE, "", part)* frame(kind, "", part)

A payload larger than `CHUNK` travels in several frames of the same kind; only the first has a header, and it announces
the total, so that the receiver takes memory once. Lengths are checked before memory is taken.

Where there is no memory for a payload, its message alone is lost: the bytes are read and thrown away, and an
`Unreceived` stands for the payload. Messages before and behind it are received.

A decoder is used by one thread at a time.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from meshrt.errors import ProtocolError

__all__ = [
    "CHUNK",
    "CONTROL_MAX",
    "DATA_MAX",
    "PAYLOAD_MAX",
    "Frame",
    "FrameDecoder",
    "Unreceived",
    "control_decoder",
    "pack_header",
    "split_frames",
    "split_packed",
]

#: Largest frame on a control link, bytes.
CONTROL_MAX = 1 << 20
#: Largest frame on a data link, bytes.
DATA_MAX = 64 << 20
#: Payload bytes of one frame of a chunked message.
CHUNK = 32 << 20
#: Largest payload of one message, bytes.
PAYLOAD_MAX = 64 << 30

MORE = 0x80
_PREFIX = struct.Struct(">IBI")
_TOTAL = struct.Struct(">Q")
#: Bytes of most headers: what `msgpack.packb` allocates, 256 KiB, is much for a process that is near a limit.
_HEADER = 256
#: From this size on a payload is received straight into memory of its own.
_DIRECT = 64 << 10
_ANONYMOUS = 8 << 20
_BOUNDARY = 64
#: Where bytes go that are thrown away; threads may share it. Its pages are taken when it is used.
_DISCARDED = memoryview(mmap.mmap(-1, 256 << 10))
#: Bytes of the header of a control frame.
_ADDRESS_MAX = 64

Buffer = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """One message as received.

    ``header`` is what msgpack has unpacked: each reader checks it. ``payload`` is the receiver's memory, what stands
    for it if parts are elsewhere, or an `Unreceived`.
    """

    kind: int
    header: Any
    payload: Any


class Unreceived:
    """Stands for a payload for which there was no memory.

    Attributes:
        size: Its bytes.
        reason: Why the memory was refused.
    """

    __slots__ = ("reason", "size")

    def __init__(self, size: int, error: Exception) -> None:
        self.size = size
        self.reason = getattr(error, "strerror", None) or str(error) or "the interpreter is out of memory"

    def error(self) -> MemoryError:
        """Return the error for the caller that wants the payload."""
        return MemoryError(f"a message of {self.size} bytes was not received: {self.reason}")


def pack_header(kind: int, header: object, payload_length: int = 0) -> bytes:
    """Return the bytes that precede a payload of ``payload_length`` bytes (at most `CHUNK`)."""
    packed = _packed(header)
    return _PREFIX.pack(len(packed) + payload_length, kind, len(packed)) + packed


def split_frames(kind: int, header: object, parts: Sequence[Buffer]) -> list[Buffer]:
    """Return the buffers to write for a message whose payload is the concatenation of ``parts``.

    Payload parts are not copied, except that small ones may be joined with the header.
    """
    return split_packed(kind, _packed(header), parts)


def _packed(header: object) -> bytes:
    packed: bytes = msgpack.Packer(buf_size=_HEADER).pack(header)
    return packed


def split_packed(kind: int, packed: bytes, parts: Sequence[Buffer]) -> list[Buffer]:
    """Like `split_frames` for a header that is packed already."""
    total = sum(map(len, parts))
    if total <= CHUNK:
        prefix = _PREFIX.pack(len(packed) + total, kind, len(packed))
        if total < _DIRECT:
            return [b"".join((prefix, packed, *parts))]
        return [prefix + packed, *parts]
    out: list[Buffer] = []
    packed = _TOTAL.pack(total) + packed
    sent = 0
    for pieces, size in _chunks(parts):
        sent += size
        flag = MORE if sent < total else 0
        out.append(_PREFIX.pack(len(packed) + size, kind | flag, len(packed)) + packed)
        out.extend(pieces)
        packed = b""
    return out


def _chunks(parts: Sequence[Buffer]) -> Iterator[tuple[list[Buffer], int]]:
    pieces: list[Buffer] = []
    size = 0
    for part in parts:
        view = memoryview(part)
        while len(view):
            take = view[: CHUNK - size]
            pieces.append(take)
            size += len(take)
            view = view[len(take) :]
            if size == CHUNK:
                yield pieces, size
                pieces, size = [], 0
    if size:
        yield pieces, size


class _Assembly:
    """A payload that is being received into memory of its own, or thrown away."""

    __slots__ = ("filled", "frame_left", "header", "kind", "more", "payload", "total", "view")

    def __init__(
        self, kind: int, header: object, total: int, frame_left: int, more: bool, memory: memoryview | None = None
    ) -> None:
        self.kind = kind
        self.header = header
        self.total = total
        self.payload: memoryview | Unreceived
        #: None: there is no memory for it.
        self.view: memoryview | None
        try:
            self.payload = self.view = _memory(total) if memory is None else memory
        except (OSError, MemoryError) as error:
            self.payload, self.view = Unreceived(total, error), None
        self.filled = 0
        self.frame_left = frame_left
        self.more = more


def _memory(size: int) -> memoryview:
    """Return ``size`` writable bytes that begin on a 64-byte boundary, as arrays like it.

    Anonymous pages cost nothing until bytes arrive, but each costs a fault; from the heap they are used again.
    """
    if size >= _ANONYMOUS:
        return memoryview(mmap.mmap(-1, size))
    block = bytearray(size + _BOUNDARY)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(block)) % _BOUNDARY
    return memoryview(block)[start : start + size]


class FrameDecoder:
    """Turns the bytes of one link into frames.

    Args:
        max_frame: Longest frame accepted, bytes.
        max_payload: Longest (chunked) payload accepted, bytes.
        lost: Called instead of returning a frame, for a payload for which there was no memory.
        place: ``place(kind, header, size)`` returns where a long payload is to be received; None: in memory of its own.
    """

    __slots__ = ("_assembly", "_lost", "_max_frame", "_max_payload", "_place", "_tail")

    def __init__(
        self,
        max_frame: int = DATA_MAX,
        max_payload: int = PAYLOAD_MAX,
        lost: Callable[[Unreceived], None] | None = None,
        place: Callable[[int, object, int], memoryview | None] | None = None,
    ) -> None:
        self._place = place
        self._max_frame = max_frame
        self._max_payload = max_payload
        self._lost = lost
        self._tail: bytes = b""
        self._assembly: _Assembly | None = None

    @property
    def at_boundary(self) -> bool:
        """Whether the next byte is the first one of a message."""
        return not self._tail and self._assembly is None

    def get_buffer(self) -> memoryview | None:
        """Return where the next bytes belong when a long payload is under way, else None (use `receive_data`)."""
        assembly = self._assembly
        if assembly is None or not assembly.frame_left:
            return None
        if assembly.view is None:
            return _DISCARDED[: assembly.frame_left]
        return assembly.view[assembly.filled : assembly.filled + assembly.frame_left]

    def buffer_updated(self, count: int) -> list[Frame]:
        """``count`` bytes were written into `get_buffer`; return the frames that this completed."""
        frames: list[Frame] = []
        self._advance(count, frames)
        return frames

    def receive_data(self, data: bytes) -> list[Frame]:
        """Take the next bytes of the link and return the frames that they complete.

        Raises:
            ProtocolError: The bytes are not valid frames, or exceed a limit; the link must be closed.
        """
        if self._tail:
            data = self._tail + data
            self._tail = b""
        frames: list[Frame] = []
        position = 0
        size = len(data)
        while position < size:
            assembly = self._assembly
            if assembly is not None and assembly.frame_left:
                count = min(assembly.frame_left, size - position)
                if assembly.view is not None:
                    assembly.view[assembly.filled : assembly.filled + count] = data[position : position + count]
                position += count
                self._advance(count, frames)
                continue
            if size - position < 9:
                break
            length, kind, header_length = _PREFIX.unpack_from(data, position)
            if length > self._max_frame or header_length > length:
                raise ProtocolError(f"a frame of {length} bytes with a header of {header_length} is not allowed here")
            start = position + 9
            body = start + header_length
            if assembly is not None:
                self._continue(assembly, length, kind, header_length)
                position = start
                continue
            if size < body:
                break
            end = start + length
            if kind & MORE or (end > size and length >= _DIRECT):
                self._begin(data[start:body], kind, length - header_length)
                position = body
            elif end > size:
                break
            else:
                header = _unpack(data[start:body])
                try:
                    frames.append(Frame(kind, header, data[body:end]))
                except MemoryError as error:
                    self._lose(Frame(kind, header, Unreceived(end - body, error)), frames)
                position = end
        if position < size:
            self._tail = data[position:] if position else data
        return frames

    def begun(self, data: bytes) -> int:
        """Return how many messages have begun to arrive, if ``data`` are the next bytes of the link; takes nothing."""
        assembly = self._assembly
        count, position, inside = 0, 0, False
        if assembly is not None:
            count, position, inside = 1, assembly.frame_left, assembly.more
        data = self._tail + data
        while position < len(data):
            count += not inside
            if len(data) - position < _PREFIX.size:
                break
            length, kind, _ = _PREFIX.unpack_from(data, position)
            position += _PREFIX.size + length
            inside = bool(kind & MORE)
        return count

    def _begin(self, header: bytes, kind: int, frame_left: int) -> None:
        more = bool(kind & MORE)
        total = frame_left
        if more:
            if len(header) < 8:
                raise ProtocolError("a chunked message without a total")
            (total,) = _TOTAL.unpack_from(header)
            header = header[8:]
            if not frame_left < total <= self._max_payload:
                raise ProtocolError(f"a chunked message of {total} bytes is not allowed here")
        found = _unpack(header)
        memory = None if self._place is None else self._place(kind & ~MORE, found, total)
        self._assembly = _Assembly(kind & ~MORE, found, total, frame_left, more, memory)

    def _continue(self, assembly: _Assembly, length: int, kind: int, header_length: int) -> None:
        missing = assembly.total - assembly.filled
        last = not kind & MORE
        fits = 0 < length <= missing and last == (length == missing)
        if kind & ~MORE != assembly.kind or header_length or not fits:
            raise ProtocolError("a chunked message was interrupted by another frame")
        assembly.frame_left = length
        assembly.more = not last

    def _advance(self, count: int, frames: list[Frame]) -> None:
        assembly = self._assembly
        if assembly is None:
            raise ProtocolError("no payload is expected")
        assembly.filled += count
        assembly.frame_left -= count
        if not assembly.frame_left and not assembly.more:
            self._assembly = None
            frame = Frame(assembly.kind, assembly.header, assembly.payload)
            if assembly.view is None:
                self._lose(frame, frames)
            else:
                frames.append(frame)

    def _lose(self, frame: Frame, frames: list[Frame]) -> None:
        if self._lost is None:
            frames.append(frame)
        else:
            self._lost(frame.payload)


def _log_loss(lost: Unreceived) -> None:
    logging.getLogger("meshrt").error("a control message was lost: %s", lost.error())


def control_decoder(
    lost: Callable[[Unreceived], None] = _log_loss, place: Callable[[int, Any, int], memoryview | None] | None = None
) -> FrameDecoder:
    """Return a decoder for a control link: nothing longer than `CONTROL_MAX`, in one piece or in many.

    Args:
        lost: Called for a message for which there was no memory. It is logged, unless another function is given.
        place: As of `FrameDecoder`.
    """
    return FrameDecoder(CONTROL_MAX + _ADDRESS_MAX, CONTROL_MAX, lost, place)


def _unpack(header: bytes) -> object:
    try:
        return msgpack.unpackb(header, strict_map_key=False, max_array_len=65536, max_map_len=65536, max_ext_len=0)
    except Exception as error:  # msgpack has no common root for "these are not my bytes"
        raise ProtocolError(f"a frame whose header is not msgpack: {error}") from None
