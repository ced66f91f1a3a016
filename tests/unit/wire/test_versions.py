"""What is said of versions, and which of them work together."""

from __future__ import annotations

import platform

import pytest

from meshrt.wire.versions import Versions, difference, own_versions

ROOT = Versions("3.11.7", "0.1.0", "cafe", "here")


def test_what_an_agent_says_is_read_again() -> None:
    own = own_versions()
    assert own.python == platform.python_version() and len(own.messages) == 12
    assert Versions.of(own.text) == own
    assert Versions.of(f"{own.text} of=a later version") == own
    assert Versions.of("3.12.1") == Versions("3.12.1", "", "", "")
    assert len(own.text) < 120


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (ROOT, ""),
        (ROOT._replace(python="3.11.0"), ""),
        (ROOT._replace(messages=""), ""),
        (
            ROOT._replace(python="3.12.7", host="n1"),
            "host n1 runs Python 3.12.7, the script Python 3.11.7; expected the same minor version",
        ),
        (
            ROOT._replace(meshrt="0.2", host="n1"),
            "host n1 has meshrt 0.2, the script meshrt 0.1.0; expected the same version",
        ),
        (
            ROOT._replace(messages="beef", host="n1"),
            "host n1 has another meshrt 0.1.0 than the script: its messages are beef, those of the script cafe; "
            "expected the same sources",
        ),
    ],
)
def test_which_agents_can_work_for_a_root(agent: Versions, expected: str) -> None:
    assert difference(agent, ROOT) == expected
