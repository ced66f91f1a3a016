"""What processes and stores say arrives as it was said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from meshrt.errors import MeshError, StoreFull
from meshrt.store.chain import StoreName
from meshrt.store.lease import Loan
from meshrt.store.messages import (
    FROM_PROCESS,
    FROM_STORE,
    TO_PROCESS,
    TO_STORE,
    Deliver,
    Delivered,
    Dropped,
    Fetch,
    Fetched,
    Found,
    Freed,
    Full,
    Give,
    GiveBack,
    Grant,
    Granted,
    Host,
    Import,
    Imported,
    LetGo,
    Offer,
    Publish,
    Published,
    Pull,
    Recall,
    Relay,
    Share,
    Silent,
    Skip,
    Take,
    TakeBack,
    Taken,
    Withdraw,
    refusal_of,
)
from meshrt.wire.control import Catalogue, Message, control_frame
from meshrt.wire.errors import refused
from meshrt.wire.frames import control_decoder
from meshrt.wire.tree import Later, Refusal

LARGE = (1 << 62) - 1
LOAN = Loan(LARGE, 4711, LARGE, LARGE, 0, (1 << 60) - 1)
HOST = Host(LARGE, 4711, [1, (1 << 22) - 1])

SAID: list[tuple[Catalogue[Message], list[Message]]] = [
    (
        FROM_PROCESS,
        [
            Publish(1, LARGE, 256 << 20, fds=1),
            Grant(1, 4096),
            Take(1, LARGE),
            Fetch(1, LARGE),
            Import(1, LOAN),
            Deliver(1, [LOAN, LOAN], [HOST]),
            Share(LARGE, LARGE, 64, 4096, "put", "train.py:3", True, [1, 2]),
            Give([LARGE], [1, 2]),
            LetGo([LARGE, 2]),
            Withdraw([LARGE]),
            TakeBack([LARGE], [1, 2]),
            Recall([LARGE], [HOST]),
            GiveBack(4096),
        ],
    ),
    (
        TO_PROCESS,
        [
            Published(1),
            Granted(1, 4096),
            Taken(1, LARGE),
            Fetched(1, 4096, fds=1),
            Imported(1, LOAN),
            Delivered(1, [HOST, HOST], [[LOAN], []]),
            Refusal(1, "no"),
            Full(1, 2, 3, 4, "the limit"),
            Silent(1, 4711, 10.5),
            Later(1),
            Freed([LARGE]),
            Dropped(LARGE),
        ],
    ),
    (
        FROM_STORE,
        [
            Pull(1, LARGE, 4096),
            Skip(1, LARGE, 4096, 0, StoreName(LARGE, 4711)),
            Relay(1, LARGE, 4096, 1 << 20),
            Offer(1, LOAN, [1, 2]),
            LetGo([LARGE]),
            TakeBack([LARGE], [1]),
        ],
    ),
    (
        TO_STORE,
        [
            Found(1, "put", "train.py:3", StoreName(LARGE, 4711)),
            Imported(1, LOAN),
            Refusal(1, "no"),
            Full(1, 2, 3, 4, "the limit"),
            Later(1),
        ],
    ),
]


@pytest.mark.parametrize(
    ("catalogue", "message"),
    [(catalogue, message) for catalogue, messages in SAID for message in messages],
    ids=lambda each: type(each).__name__,
)
def test_each_message_arrives(catalogue: Catalogue[Message], message: Message) -> None:
    (frame,) = control_decoder().receive_data(control_frame(message))
    assert catalogue.decode(frame.payload) == message


@pytest.mark.parametrize(("catalogue", "messages"), SAID, ids=["from process", "to process", "from store", "to store"])
def test_none_is_left_out_above(catalogue: Catalogue[Message], messages: list[Message]) -> None:
    assert {type(message) for message in messages} == set(catalogue._types.values())


def test_text_that_utf_8_does_not_know() -> None:
    (share,) = (message for message in SAID[0][1] if isinstance(message, Share))
    (frame,) = control_decoder().receive_data(control_frame(replace(share, site="a\udcff.py:1")))
    assert FROM_PROCESS.decode(frame.payload) == replace(share, site="a\\udcff.py:1")


def test_what_a_refusal_tells_of() -> None:
    full = refusal_of(1, StoreFull(5, 4, 3, "the limit"))
    assert isinstance(full, Full) and str(full.error()) == str(StoreFull(5, 4, 3, "the limit"))
    refusal = refusal_of(2, OSError("no descriptor"))
    assert isinstance(refusal, Refusal) and refusal.id == 2
    assert type(refused(refusal)) is MeshError and str(refused(refusal)) == "OSError: no descriptor"
