"""The handshake: both sides prove the secret; any change of any byte is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import AuthenticationError
from meshrt.wire.handshake import MAGIC, ROLE_DATA, ROLE_TOOL, ClientHandshake, ServerHandshake

SECRET = bytes(range(32))
ENDPOINT = "mesh/3/trainer"


def shake(client: ClientHandshake, server: ServerHandshake) -> tuple[bytes, bytes, bytes]:
    """Run it to its end; returns the messages that prove."""
    hello = client.hello()
    answer = server.receive_data(hello)
    proof = client.receive_data(answer)
    assert server.done is client.done is False
    assert client.receive_data(server.receive_data(proof)) == b""
    return hello, answer, proof


def pair(secret: bytes = SECRET, role: int = ROLE_DATA) -> tuple[ClientHandshake, ServerHandshake]:
    return ClientHandshake(secret, role, ENDPOINT), ServerHandshake(SECRET, ROLE_DATA)


def test_both_sides_are_done_and_the_server_knows_the_endpoint() -> None:
    client, server = pair()
    messages = shake(client, server)
    assert client.done and server.done and server.endpoint == ENDPOINT
    assert client.leftover == server.leftover == b""
    assert SECRET not in b"".join(messages)


def test_byte_by_byte() -> None:
    client, server = pair()
    answer = b"".join(server.receive_data(bytes([byte])) for byte in client.hello())
    assert not server.done
    proof = b"".join(client.receive_data(bytes([byte])) for byte in answer)
    for byte in proof:
        assert not server.done
        last = server.receive_data(bytes([byte]))
    assert (server.done, client.done) == (True, False)
    client.receive_data(last)
    assert client.done


def test_what_comes_behind_the_proofs_is_left_over() -> None:
    client, server = pair()
    proof = client.receive_data(server.receive_data(client.hello()))
    let_in = server.receive_data(proof + b"first frame")
    client.receive_data(let_in + b"first words")
    assert client.leftover == b"first words" and server.leftover == b"first frame"


@pytest.mark.parametrize("together", [True, False])
def test_a_client_takes_nothing_before_it_is_let_in(together: bool) -> None:
    client, server = pair()
    answer = server.receive_data(client.hello())
    if not together:
        client.receive_data(answer)
        answer = b""
    with pytest.raises(AuthenticationError):
        client.receive_data(answer + b"early words")
    assert not client.done


def test_no_two_handshakes_have_the_same_bytes() -> None:
    one, two = shake(*pair()), shake(*pair())
    assert not set(one) & set(two)


def test_another_secret_is_refused_by_the_client_first() -> None:
    client, server = pair(secret=bytes(32))
    answer = server.receive_data(client.hello())
    with pytest.raises(AuthenticationError, match="does not hold the secret"):
        client.receive_data(answer)
    assert not client.done and not server.done


def test_a_client_without_the_secret_is_refused_by_the_server() -> None:
    client, server = pair()
    server.receive_data(client.hello())
    with pytest.raises(AuthenticationError, match="does not hold the secret"):
        server.receive_data(bytes(32))


def test_another_role_is_refused() -> None:
    client, server = pair(role=ROLE_TOOL)
    with pytest.raises(AuthenticationError):
        server.receive_data(client.hello())


@pytest.mark.row("N5")
@pytest.mark.parametrize("message", [0, 1, 2])
def test_any_changed_byte_of_any_message_is_refused(message: int) -> None:
    client, server = pair()
    for index in range(len(shake(client, server)[message])):
        for flip in (0x01, 0x80, 0xFF):
            client, server = pair()
            with pytest.raises(AuthenticationError):
                shake_with_change(client, server, message, index, flip)
            assert not server.done


def shake_with_change(client: ClientHandshake, server: ServerHandshake, message: int, index: int, flip: int) -> None:
    def send(number: int, data: bytes) -> bytes:
        if number != message:
            return data
        return data[:index] + bytes([data[index] ^ flip]) + data[index + 1 :]

    answer = server.receive_data(send(0, client.hello()))
    if not answer:
        # A longer endpoint was announced: whatever follows as its rest must not help.
        answer = server.receive_data(bytes(255))
    proof = client.receive_data(send(1, answer))
    server.receive_data(send(2, proof))


def test_a_proof_cannot_be_relayed_to_another_endpoint() -> None:
    """A peer in the middle passes all bytes on to a rank that the client did not dial."""
    client = ClientHandshake(SECRET, ROLE_DATA, "mesh/3/trainer")
    server = ServerHandshake(SECRET, ROLE_DATA)
    hello = client.hello()
    other = hello.replace(b"mesh/3/trainer", b"mesh/4/trainer")
    assert other != hello
    with pytest.raises(AuthenticationError):
        client.receive_data(server.receive_data(other))


@pytest.mark.row("N5")
def test_a_proof_cannot_be_replayed() -> None:
    hello, answer, proof = shake(*pair())
    server = ServerHandshake(SECRET, ROLE_DATA)
    server.receive_data(hello)
    with pytest.raises(AuthenticationError):
        server.receive_data(proof)
    client, _ = pair()
    with pytest.raises(AuthenticationError):
        client.receive_data(answer)


def test_the_answer_of_a_server_is_no_proof_of_a_client() -> None:
    """Reflection: the two proofs differ although both sides have one secret."""
    client, server = pair()
    answer = server.receive_data(client.hello())
    with pytest.raises(AuthenticationError):
        server.receive_data(answer[32:])


def test_speaking_before_the_proof_is_refused() -> None:
    client, server = pair()
    with pytest.raises(AuthenticationError, match="has sent data before its proof"):
        server.receive_data(client.hello() + b"CALL me")


def test_an_endpoint_that_is_too_long_is_refused_here() -> None:
    with pytest.raises(AuthenticationError, match="longer than 200 bytes"):
        ClientHandshake(SECRET, ROLE_DATA, "x" * 201)


@given(st.binary(max_size=600), st.integers(1, 100))
def test_foreign_bytes_are_refused_with_few_of_them_taken(data: bytes, step: int) -> None:
    server = ServerHandshake(SECRET, ROLE_DATA)
    try:
        for start in range(0, len(data), step):
            server.receive_data(data[start : start + step])
            assert len(server._buffer) <= 300
    except AuthenticationError:
        pass
    assert not server.done


@given(st.binary(min_size=1, max_size=9))
def test_a_wrong_beginning_is_refused_at_once(data: bytes) -> None:
    server = ServerHandshake(SECRET, ROLE_DATA)
    if MAGIC.startswith(data[: len(MAGIC)]):
        assert server.receive_data(data[: len(MAGIC)]) == b""
    else:
        with pytest.raises(AuthenticationError, match="does not speak this protocol"):
            server.receive_data(data)


def test_versions_are_said_behind_the_endpoint_and_one_may_be_refused_with_a_reason() -> None:
    asked: list[tuple[str, str]] = []

    def refuses(endpoint: str, versions: str) -> str:
        asked.append((endpoint, versions))
        return "too old" * 40

    client = ClientHandshake(SECRET, ROLE_DATA, ENDPOINT, versions="3.11.7 0.1.0")
    server = ServerHandshake(SECRET, ROLE_DATA, refuses=refuses)
    proof = client.receive_data(server.receive_data(client.hello()))
    assert asked == []
    for byte in server.receive_data(proof):
        assert client.refused == ""
        client.receive_data(bytes([byte]))
    assert asked == [(ENDPOINT, "3.11.7 0.1.0")]
    assert client.refused == server.refused == "too old" * 40
    assert not client.done and not server.done


def test_who_has_no_proof_is_not_asked_for_versions() -> None:
    client = ClientHandshake(b"x" * 32, ROLE_DATA, ENDPOINT, versions="1")
    server = ServerHandshake(SECRET, ROLE_DATA, refuses=lambda *_: pytest.fail("asked"))
    server.receive_data(client.hello())
    with pytest.raises(AuthenticationError):
        server.receive_data(b"x" * 32)
