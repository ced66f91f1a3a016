from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.debug.fakes import FakeRank


@pytest.fixture
def rank() -> Iterator[FakeRank]:
    fake = FakeRank()
    try:
        yield fake
    finally:
        fake.close()
