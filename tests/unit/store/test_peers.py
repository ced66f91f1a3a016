"""The connections of a store: which descriptors are open in its process because a peer has sent them."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.errors import ProtocolError
from meshrt.store.dialling import knock
from meshrt.store.messages import FROM_PROCESS, Dropped, Fetched, FromProcess, FromStore, LetGo, Publish, Published
from meshrt.store.peers import Peer, Peers
from meshrt.store.protocol import DescriptorStream, Incoming, close_descriptors
from meshrt.wire.control import Catalogue, control_frame
from meshrt.wire.handshake import MAGIC, UNPROVED_MAX, Identity
from tests.support.control import raw_frame
from tests.unit.store.other_store import SECRET, serve

OWN = Identity(1, os.getpid(), os.getpid())


KEPT, DROPPED, REFUSED = 1, 2, 3


def published(chunk: int, fds: int = 1) -> bytes:
    """Return a message about a chunk, which comes with so many descriptors."""
    return control_frame(Publish(1, chunk, 4096, fds=fds))


class Store:
    """A store that keeps the descriptors of chunk `KEPT`, and refuses to hear of chunk `REFUSED`."""

    def __init__(self, folder: Path) -> None:
        self.selector = selectors.DefaultSelector()
        self.path = str(folder / "store")
        self.heard: list[FromProcess | FromStore] = []
        self.kept: list[int] = []
        #: Processes, as they were heard.
        self.asked: list[Peer] = []
        self.peers = Peers(
            self.selector,
            self.path,
            SECRET,
            OWN,
            self._from_process,
            self._from_store,
            lambda _number: None,
            lambda _seconds, _action: None,
        )

    def _from_process(self, peer: Peer, incoming: Incoming[FromProcess]) -> None:
        self.heard.append(incoming.message)
        self.asked.append(peer)
        assert isinstance(incoming.message, Publish)
        if incoming.message.chunk == KEPT:
            self.kept += incoming.descriptors
            incoming.descriptors.clear()
        if incoming.message.chunk == REFUSED:
            raise ValueError("nonsense")

    def _from_store(self, _peer: Peer, message: FromStore) -> None:
        self.heard.append(message)

    def serve(self) -> None:
        serve(self.selector)

    def close(self) -> None:
        self.peers.close()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()
        for descriptor in self.kept:
            os.close(descriptor)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def proved(store: Store, machine: int = OWN.machine) -> socket.socket:
    """Return a connection that the store has let in."""
    sock, handshake = knock(store.path, SECRET, OWN._replace(machine=machine), 10.0)
    while not handshake.done:
        store.serve()
        sock.sendall(handshake.receive_data(sock.recv(256)))
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Whether the store has hung up."""
    sock.setblocking(False)
    try:
        return not sock.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True  # with what it has not read


@pytest.mark.row("N10")
def test_no_descriptor_is_received_before_the_proof(store: Store) -> None:
    """Sixty connections that prove nothing take sixty descriptors, whatever they attach."""
    before = open_descriptors()
    socks = []
    for _ in range(UNPROVED_MAX - 4):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(store.path)
        socks.append(sock)
        for byte in MAGIC:
            socket.send_fds(sock, [bytes([byte])], [0] * 16)
    store.serve()
    assert open_descriptors() - before == 2 * len(socks), "each connection has two ends in this process"
    for sock in socks:
        sock.close()
    store.serve()
    assert open_descriptors() == before


@pytest.mark.row("N10")
def test_the_oldest_of_too_many_that_prove_nothing_is_dropped(store: Store) -> None:
    before = open_descriptors()
    socks = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2 * UNPROVED_MAX)]
    for sock in socks:
        sock.connect(store.path)
        store.serve()
    assert [is_closed(sock) for sock in socks] == [True] * UNPROVED_MAX + [False] * UNPROVED_MAX
    for sock in socks:
        sock.close()
    store.serve()
    assert open_descriptors() == before


def test_what_no_message_claims_ends_the_connection(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    socket.send_fds(sock, [published(KEPT)], [0, 0])
    store.serve()
    assert is_closed(sock) and store.heard == []
    sock.close()
    assert open_descriptors() == before - 2


def test_parts_of_a_message_bring_no_more_descriptors_than_one_read(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    frame = published(KEPT, 16)
    for start in range(20):
        with contextlib.suppress(ConnectionError):
            socket.send_fds(sock, [frame[start : start + 1]], [0] * 16)
        store.serve()
        assert open_descriptors() <= before + 16
    assert is_closed(sock)
    sock.close()


def test_a_handler_that_keeps_none_leaves_none_open(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    for _ in range(3):
        socket.send_fds(sock, [published(DROPPED, 3)], [0, 0, 0])
    store.serve()
    assert len(store.heard) == 3 and open_descriptors() == before
    socket.send_fds(sock, [published(KEPT)], [0])
    store.serve()
    assert len(store.kept) == 1 and open_descriptors() == before + 1
    sock.close()


def test_a_message_that_is_nonsense_leaves_none_open(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    for chunk in (REFUSED, KEPT):
        socket.send_fds(sock, [published(chunk)], [0])
    store.serve()
    assert is_closed(sock) and store.kept == []
    sock.close()
    assert open_descriptors() == before - 2


def test_what_a_process_has_said_before_it_ended_is_heard_although_an_answer_to_it_is_late(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    socket.send_fds(sock, [published(DROPPED)], [0])
    store.serve()
    (process,) = store.asked
    socket.send_fds(sock, [published(KEPT)], [0])
    sock.close()
    assert not store.peers.answer(process, Published(1))
    store.peers.tell(process.pid, Dropped(7))
    assert store.peers.connected(process)
    store.serve()
    assert [message.chunk for message in store.heard if isinstance(message, Publish)] == [DROPPED, KEPT]
    assert len(store.kept) == 1 and not store.peers.connected(process)
    assert open_descriptors() == before - 2 + 1


def test_a_store_of_another_machine_brings_none(store: Store) -> None:
    sock = proved(store, machine=OWN.machine + 1)
    before = open_descriptors()
    socket.send_fds(sock, [control_frame(LetGo([5]))], [0])
    store.serve()
    assert store.heard == [LetGo([5])] and not is_closed(sock) and open_descriptors() == before
    sock.close()


def test_a_message_that_has_no_descriptors_brings_none(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    socket.send_fds(sock, [control_frame(LetGo([5]))], [0])
    store.serve()
    assert is_closed(sock) and store.heard == []
    sock.close()
    assert open_descriptors() == before - 2


@pytest.mark.parametrize(
    ("fields", "machine", "expected"),
    [
        ({"t": "no such"}, 0, "expected one of deliver, fetch, give, give_back, grant, import, let_go, publish"),
        ({"t": "pull", "id": 1, "segment": 5, "size": 1}, 0, "a control message of type 'pull'; expected one of"),
        ({"t": "grant", "id": 1}, 0, "type 'grant': Object missing required field `size`"),
        ({"t": "grant", "size": 1}, 0, "type 'grant': Object missing required field `id`"),
        ({"t": "grant", "id": 1, "size": "much"}, 0, "type 'grant': Expected `int`, got `str` - at `$.size`"),
        ({"t": "grant", "id": 1, "size": 0}, 0, "type 'grant': Expected `int` >= 1 - at `$.size`"),
        ({"t": "grant", "id": 1, "size": 1 << 60}, 0, "type 'grant': Expected `int` <= 1152921504606846975"),
        ({"t": "give", "segments": [1], "to": [0]}, 0, "type 'give': Expected `int` >= 1 - at `$.to[0]`"),
        ({"t": "give", "segments": [1], "to": [1 << 22]}, 0, "type 'give': Expected `int` <= 4194303 - at `$.to[0]`"),
        ({"t": "deliver", "id": 1, "loans": [], "to": [[1, 2, [-1]]]}, 0, "Expected `int` >= 1 - at `$.to[0][2][0]`"),
        ({"t": "import", "id": 1, "loan": [1] * 5}, 0, "Expected `array` of length 6, got 5 - at `$.loan`"),
        ({"t": "import", "id": 1, "loan": [1, 2, 3, 4, 0, 0]}, 0, "Expected `int` >= 1 - at `$.loan[5]`"),
        ({"t": "publish", "id": 1, "chunk": 1, "size": 1, "fds": -1}, 0, "Expected `int` >= 0 - at `$.fds`"),
        ({"t": "grant", "id": 1, "size": 1}, 1, "expected one of let_go, offer, pull, relay, skip, take_back"),
        ({"t": "offer", "id": 1, "loan": [1, 2, 3, 4, 0, 1], "pids": [-5]}, 1, "Expected `int` >= 1 - at `$.pids[0]`"),
        ({"t": "take_back", "segments": [1]}, 1, "type 'take_back': Object missing required field `pids`"),
    ],
)
def test_a_bad_message_ends_its_connection_alone(
    store: Store, caplog: pytest.LogCaptureFixture, fields: dict[str, object], machine: int, expected: str
) -> None:
    """... and the log names what was expected."""
    bad, good = (proved(store, OWN.machine + machine) for _ in range(2))
    bad.sendall(raw_frame(fields))
    store.serve()
    assert is_closed(bad) and not is_closed(good) and store.heard == []
    (record,) = caplog.records
    assert expected in record.getMessage()
    good.setblocking(True)
    good.sendall(published(DROPPED) if not machine else control_frame(LetGo([5])))
    store.serve()
    assert len(store.heard) == 1 and not is_closed(good)
    bad.close()
    good.close()


def test_messages_before_foreign_bytes_leave_none_open() -> None:
    ours, theirs = socket.socketpair()
    stream = DescriptorStream(ours)
    before = open_descriptors()
    # The second message cannot be read when the first one has been.
    broken = published(KEPT).replace(b"publish", b"\xff" * 7)
    socket.send_fds(theirs, [published(KEPT) + broken], [0])
    with pytest.raises(ProtocolError):
        stream.read(FROM_PROCESS)
    stream.close()
    theirs.close()
    assert open_descriptors() == before - 2


def test_a_process_that_does_not_read_its_answers_is_not_read_from(store: Store) -> None:
    """Each answer may have a descriptor with it. What it has said is served when it reads."""
    sock = proved(store)
    before = open_descriptors()
    file = os.memfd_create("chunk")

    def answer(peer: Peer, incoming: Incoming[FromProcess]) -> None:
        store.heard.append(incoming.message)
        peer.stream.queue_with(Fetched(len(store.heard), 4096), [file])

    store.peers._from_process = answer
    sent = 0
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while sent < 20_000:
            sent += bool(sock.send(published(DROPPED, 0)))
            if not sent % 100:
                store.serve()
    sock.setblocking(True)
    assert sent < 20_000 and open_descriptors() - before < 100, "it is not read from, and little waits for it"
    reader = DescriptorStream(sock)
    numbers = list[int]()
    while len(numbers) < sent:
        store.serve()
        for incoming in reader.read(Catalogue(Fetched)) or []:
            numbers.append(incoming.message.id)
            close_descriptors(incoming.descriptors)
    assert numbers == [*range(1, sent + 1)]
    sock.close()
    os.close(file)
    store.serve()
    assert open_descriptors() == before - 2


def test_one_that_ends_without_reading_its_answers_is_heard_to_the_end(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()

    def answer(peer: Peer, incoming: Incoming[FromProcess]) -> None:
        store.heard.append(incoming.message)
        peer.stream.queue_with(Fetched(1, 4096), [0])

    store.peers._from_process = answer
    sock.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += bool(sock.send(published(DROPPED, 0)))
            if not sent % 100:
                store.serve()
    sock.close()
    store.serve()
    assert len(store.heard) == sent and open_descriptors() == before - 2
