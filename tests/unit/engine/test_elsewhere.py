"""An agent on another machine: its numbers of processes are not looked up, or signalled, here."""

from __future__ import annotations

import os
import signal

import pytest

from meshrt.engine.elsewhere import Elsewhere


def test_a_pid_of_another_machine_is_never_signalled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, ...]] = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *given: sent.append(given))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *given: sent.append(given))
    agent = Elsewhere()
    agent.kill_ranks([os.getpid()])
    agent.kill_left(1)
    assert not agent.resume()
    assert sent == []
