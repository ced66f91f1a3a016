from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshrt.debug.dap.wire import MessageDecoder, encode, event, failure, response
from meshrt.errors import ProtocolError

_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_BODIES = st.dictionaries(st.text(), _VALUES, max_size=3)
_NUMBERS = st.integers(0, 1 << 40)
MESSAGES = st.one_of(
    st.builds(
        lambda n, c, a: {"seq": n, "type": "request", "command": c, "arguments": a}, _NUMBERS, st.text(), _BODIES
    ),
    st.builds(lambda n, e, b: {"seq": n, **event(e), "body": b}, _NUMBERS, st.text(), _BODIES),
    st.builds(lambda n, c, b: response({"seq": n, "command": c}, b), _NUMBERS, st.text(), st.none() | _BODIES),
)
#: What people and programs send to an open port.
STRANGE = st.sampled_from(
    [
        b"Content-Length: ",
        b"content-length:3",
        b"\r\n",
        b"\r\n\r\n",
        b"{}",
        b"[]",
        b"GET / HTTP/1.1",
        b"-1",
        b"9" * 5000,
    ]
)


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.slow
@given(st.lists(MESSAGES, max_size=4), st.data())
def test_any_split_gives_the_same_messages(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    stream = b"".join(map(encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, found = MessageDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.receive_data(stream[start:end])
    assert found == messages


def test_every_byte_alone_and_more_headers() -> None:
    decoder, found = MessageDecoder(), []
    for byte in b'Content-Type: x\r\nCONTENT-length :  28 \r\n\r\n{"type":"event","event":"a"}':
        found += decoder.receive_data(bytes([byte]))
    assert found == [{"type": "event", "event": "a"}]


@given(st.lists(STRANGE | st.binary() | _VALUES.map(lambda value: framed(json.dumps(value).encode())), max_size=6))
@example([framed(b"[" * 100_000)])
@example([framed(b"9" * 5000)])
@example([framed(b"\xff\xfe")])
def test_garbage_is_a_protocol_error_and_nothing_else(parts: list[bytes]) -> None:
    decoder = MessageDecoder()
    try:
        for part in parts:
            for message in decoder.receive_data(part):
                assert message["type"] in ("request", "response", "event")
    except ProtocolError:
        return
    # What has not been refused is the beginning of something.
    assert len(decoder._buffer) <= 5000 + 4096


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "expected Content-Length: N, got b'GET / HTTP/1.1'"),
        (b"Content-Length: -1\r\n\r\n", "expected Content-Length"),
        # What a browser sends for a page that knows the port: with a body that is a frame of DAP, too.
        (
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1:5678\r\nContent-Length: 2\r\n\r\n{}",
            "expected Content-Length: N, got b'POST / HTTP/1.1'",
        ),
        (b"Content-Length: 2\r\nHost: 127.0.0.1:5678\r\n\r\n{}", "got b'Host: 127.0.0.1:5678'"),
        (b"Content-Length: 2\r\nOrigin: http://a.test\r\n\r\n{}", "got b'Origin: http://a.test'"),
        (b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}", "got b'Content-Length: 9'"),
        (b"Content-Length: 2\r\nno colon\r\n\r\n{}", "got b'no colon'"),
        (b"Content-Type: x\r\n\r\n{}", "expected Content-Length: N, got b'Content-Type: x'"),
        (b"\r\n\r\n{}", "expected Content-Length: N, got b''"),
        (b"Content-Length: " + b"9" * 4900 + b"\r\n\r\n", "no end of a header within 4096 bytes"),
        (b"Content-Length: " + b"9" * 3900 + b"\r\n\r\n", "expected Content-Length"),
        (b"x" * 5000, "no end of a header within 4096 bytes"),
        (b"Content-Length: 101\r\n\r\n", "a message of 101 bytes; the limit is 100 bytes"),
        (framed(b"{"), "not JSON"),
        (framed(b"\xff\xff"), "not JSON"),
        (framed(b"[]"), "not a request, response or event"),
        (framed(b'{"type": "request", "command": "x"}'), "not a request, response or event"),
        (framed(b'{"type": "request", "command": 1, "seq": 1}'), "not a request, response or event"),
        (framed(b'{"type": "response", "command": "x", "request_seq": []}'), "not a request, response or event"),
        (framed(b'{"type": ["request"], "command": "x", "seq": 1}'), "not a request, response or event"),
        (
            framed(b'{"type": "request", "command": "x", "seq": 1, "arguments": [1]}'),
            "arguments of 'x' that is not an object",
        ),
        (framed(b'{"type": "event", "event": "x", "body": "text"}'), "body of 'x' that is not an object"),
    ],
)
def test_complaints(sent: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        MessageDecoder(limit=100).receive_data(sent)
    assert complaint in str(caught.value)


def test_a_refusal_is_meant_for_a_person() -> None:
    refused = failure({"seq": 7, "command": "attach"}, "no {rank}")
    assert (refused["request_seq"], refused["command"], refused["success"]) == (7, "attach", False)
    assert refused["message"] == "no {rank}"
    # Braces would be taken for variables of the text.
    assert refused["body"]["error"]["format"] == "no (rank)"
    assert refused["body"]["error"]["showUser"] and refused["body"]["error"]["id"] != 0
    assert MessageDecoder().receive_data(encode(refused)) == [refused]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (encode(event("x")), ""),
        (b"Content-", "the input ends in a header: b'Content-'; expected Content-Length: N"),
        (b"Content-Length: 9\r\n\r\n{}", "the input ends after 2 of the 9 bytes of a message"),
        (b"Content-Length: 9\r\n\r\n", "the input ends after 0 of the 9 bytes of a message"),
    ],
)
def test_a_stream_that_ends_within_a_message_is_invalid(data: bytes, problem: str) -> None:
    decoder = MessageDecoder()
    decoder.receive_data(data)
    if not problem:
        decoder.receive_eof()
        return
    with pytest.raises(ProtocolError) as caught:
        decoder.receive_eof()
    assert problem in str(caught.value)
