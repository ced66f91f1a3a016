"""The chain of hosts that a segment goes along: the table in the module, walked."""

from __future__ import annotations

import random

import pytest

from meshrt.store.chain import Chains, StoreName

SEGMENT = 9
HOSTS = [StoreName(100 + number, 7) for number in range(5)]
A, B, C, D, E = HOSTS


def number_of(host: StoreName) -> int:
    """The number of its connection, as the owner knows it."""
    return -1 - HOSTS.index(host)


def joined(count: int) -> tuple[Chains, list[StoreName | None]]:
    """A chain of so many hosts, and what each of them was told."""
    chains = Chains()
    return chains, [chains.join(SEGMENT, number_of(host), host) for host in HOSTS[:count]]


def test_each_host_fetches_from_the_one_before_it() -> None:
    chains, told = joined(4)
    assert told == [None, A, B, C] and chains.of(SEGMENT) == [A, B, C, D]
    assert chains.join(SEGMENT, number_of(B), B) == A, "it asks again"
    assert chains.join(8, number_of(B), B) is None, "another segment has a chain of its own"


@pytest.mark.parametrize(
    ("host", "without", "told"),
    [(A, B, None), (B, A, None), (C, B, A), (D, C, B), (D, A, None), (D, E, C), (D, D, C), (E, D, C)],
    ids=lambda each: "ABCDE"[HOSTS.index(each)] if isinstance(each, StoreName) else str(each),
)
def test_a_host_that_does_not_deliver_is_skipped(host: StoreName, without: StoreName, told: StoreName | None) -> None:
    chains, _ = joined(5)
    assert chains.skip(SEGMENT, number_of(host), host, without) == told
    assert chains.of(SEGMENT) == HOSTS, "it may only be slow"


def test_a_host_that_has_left_is_skipped() -> None:
    chains, _ = joined(4)
    chains.leave(SEGMENT, number_of(B))
    chains.leave(SEGMENT, number_of(B))
    assert chains.skip(SEGMENT, number_of(C), C, B) == A
    chains.ended(number_of(A))
    assert chains.skip(SEGMENT, number_of(C), C, A) is None
    assert chains.join(SEGMENT, number_of(B), B) == D, "it is the last now"
    assert chains.has(SEGMENT, number_of(B)) and not chains.has(SEGMENT, number_of(A))
    for host in (B, C, D):
        chains.leave(SEGMENT, number_of(host))
    assert chains.of(SEGMENT) == [] and chains.join(SEGMENT, number_of(A), A) is None


def test_a_connection_that_was_made_anew() -> None:
    chains, _ = joined(2)
    assert chains.skip(SEGMENT, -9, B, A) is None
    chains.ended(number_of(B))
    assert chains.of(SEGMENT) == [A, B] and chains.has(SEGMENT, -9)


@pytest.mark.parametrize("seed", range(20))
def test_no_two_hosts_wait_for_each_other(seed: int) -> None:
    """Whatever happens: who follows the sources comes to the owner."""
    chance = random.Random(seed)
    chains = Chains()
    sources: dict[StoreName, StoreName | None] = {}
    for _ in range(60):
        host = chance.choice(HOSTS)
        number = number_of(host)
        if host not in sources:
            sources[host] = chains.join(SEGMENT, number, host)
        elif (source := sources[host]) is not None and chance.random() < 0.6:
            sources[host] = chains.skip(SEGMENT, number, host, source)
        elif host not in sources.values():  # it has it, and no other fetches from it
            del sources[host]
            chains.leave(SEGMENT, number)
        for each in sources:
            seen = [each]
            while (before := sources.get(seen[-1])) is not None:
                assert before not in seen
                seen.append(before)
