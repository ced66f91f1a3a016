"""The client of the tests, on an adapter that says what the test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.hooks.facts import Body
from tests.dap.adapter import Adapter
from tests.dap.client import Client, RequestFailed
from tests.dap.framing import Violation


@pytest.fixture
def adapter(tmp_path: Path) -> Iterator[Adapter]:
    ready = Adapter(tmp_path)
    yield ready
    ready.close()


@pytest.fixture
def client(adapter: Adapter) -> Iterator[Client]:
    connected = Client(adapter.address, answer=_double)
    adapter.accept()
    yield connected
    connected.close()


def _double(command: str, arguments: Body) -> Body:
    if command != "double":
        raise LookupError(f"expected double, got {command}")
    return {"doubled": 2 * arguments["number"]}


def test_answers_find_their_requests(adapter: Adapter, client: Client) -> None:
    first, second = client.begin("threads"), client.begin("evaluate", expression="x")
    assert adapter.received() == {"seq": 1, "type": "request", "command": "threads"}
    assert adapter.received() == {"seq": 2, "type": "request", "command": "evaluate", "arguments": {"expression": "x"}}
    adapter.send(type="response", request_seq=2, command="evaluate", success=False, message="no such name: x")
    adapter.send(type="response", request_seq=1, command="threads", success=True, body={"threads": []})
    assert client.result_of(first, "threads") == {"threads": []}
    with pytest.raises(RequestFailed, match=r"^evaluate: no such name: x$"):
        client.result_of(second, "evaluate")


def test_events_are_kept_in_order_until_taken(adapter: Adapter, client: Client) -> None:
    for number in (1, 2, 3):
        adapter.send(type="event", event="stopped", body={"threadId": number})
    assert client.wait_event("stopped", lambda body: body["threadId"] == 2) == {"threadId": 2}
    assert [client.wait_event("stopped")["threadId"] for _ in range(2)] == [1, 3]
    assert [event.body["threadId"] for event in client.events] == [1, 2, 3]
    client.begin("pause")
    with pytest.raises(
        AssertionError, match=r"no event 'exited': not within 0 s; unanswered: pause; .*\"threadId\": 3"
    ):
        client.wait_event("exited", seconds=0)


def test_a_wait_ends_with_what_it_depends_on(adapter: Adapter, client: Client) -> None:
    attaching = client.begin("attach")
    refusals = iter([{"request_seq": 1, "command": "attach", "success": False, "message": "no mesh"}])

    def unfit(_body: Body) -> bool:
        # Asked while the client waits, so the refusal finds it waiting.
        for refusal in refusals:
            adapter.send(type="response", **refusal)
        return False

    adapter.send(type="event", event="initialized")
    with pytest.raises(RequestFailed, match="attach: no mesh"):
        client.wait_event("initialized", unfit, seconds=threading.TIMEOUT_MAX, unless=attaching)
    asked = client.begin("threads")
    assert [adapter.received()["command"] for _ in range(2)] == ["attach", "threads"]
    adapter.close()
    with pytest.raises(ConnectionError, match="threads: the adapter has closed the connection"):
        client.result_of(asked, "threads")
    with pytest.raises(AssertionError, match="no event 'stopped': the adapter has closed the connection"):
        client.wait_event("stopped")
    with pytest.raises(ConnectionError, match="threads: the adapter has closed"):
        client.request("threads")


def test_the_adapter_may_ask(adapter: Adapter, client: Client) -> None:
    adapter.send(type="request", command="double", arguments={"number": 4})
    assert adapter.received() == {
        "seq": 1,
        "type": "response",
        "request_seq": 1,
        "command": "double",
        "success": True,
        "body": {"doubled": 8},
    }
    adapter.send(type="request", command="runInTerminal")
    answer = adapter.received()
    assert (answer["success"], answer["message"]) == (False, "LookupError: expected double, got runInTerminal")


def _with_length(content: str) -> bytes:
    return f"Content-Length: {len(content)}\r\n\r\n{content}".encode()


BROKEN = {
    b"Content-Length 5\r\n\r\n": "expected a header field 'Name: value'",
    b"Content-Length: 5\n\n": "that ends with CR LF",
    b"Content-Type: json\r\n\r\n": "expected a header with a Content-Length",
    _with_length("[]"): "expected a JSON object",
    _with_length("{]"): "expected JSON",
    _with_length('{"seq": 0}'): "a message has the number 0",
    _with_length('{"seq": 2, "type": "event", "event": "x"}')
    + _with_length('{"seq": 2}'): "the number 2, after 1 others",
    _with_length('{"seq": 1}'): "is no event, response or request",
    _with_length('{"seq": 1, "type": "event", "event": 5}'): "is no event, response or request",
    _with_length(
        '{"seq": 1, "type": "response", "request_seq": 7, "command": "next", "success": true}'
    ): "asked was nothing",
    _with_length(
        '{"seq": 1, "type": "response", "request_seq": 1, "command": "next", "success": true}'
    ): "asked was threads",
}


@pytest.mark.parametrize("sent", BROKEN, ids=BROKEN.values())
def test_what_breaks_the_protocol_is_told(adapter: Adapter, client: Client, sent: bytes) -> None:
    asked = client.begin("threads")
    adapter.sock.sendall(sent)
    with pytest.raises(Violation) as caught:
        client.result_of(asked, "threads")
    assert BROKEN[sent] in str(caught.value) and BROKEN[sent] in client.ended
