"""Which tests run on which version of Python."""

from __future__ import annotations

import pytest

from tests.conftest import HERE, ONE_PYTHON


@pytest.mark.parametrize("place", ONE_PYTHON)
def test_what_runs_on_one_version_is_there(place: str) -> None:
    assert (HERE / place).exists(), "a list of tests names what has been moved"


def test_what_depends_on_the_version_runs_on_each() -> None:
    assert not [place for place in ONE_PYTHON if place.startswith(("dap", "debug", "unit/debug", "unit/inspect"))]
