"""The table of what is tried: everything that comes from outside, changed at random.

Frames, handshakes, messages, IDEs, command lines. `mutating` changes examples, by bytes and by structure; `running`
tries a fixed number of changes (the suite), or goes on for as long as it is given, led by the lines of code that a
change reaches (``make fuzz``, and each night). What was found stays in the table, and is tried first.
"""

from __future__ import annotations

from tests.fuzz import agent, answers, ide, joining, prompt, store, tunnel, wire
from tests.fuzz.mutating import packed
from tests.fuzz.running import Target

__all__ = ["FOUND", "TARGETS"]

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (wire, agent, joining, answers, tunnel, store, ide, prompt)
    for target in module.TARGETS
}

#: Inputs that have had an effect that they may not have, by target.
FOUND: list[tuple[str, bytes]] = [
    # A chunk without a size: its descriptor stayed open.
    ("store", packed([{"t": "publish", "id": 1, "chunk": 1, "fds": 1}])),
    # A file in the place of a socket: the agent ended.
    ("joining", packed([{"t": "join", "rank": 1, "fds": 1}, {"t": "ready", "fds": 1}])),
    # A bool in the place of the number of a rank.
    ("agent", packed([[["m1", False], {"t": "pong"}]])),
    # Descriptors that come with a refusal: they stayed open.
    ("meeting-answer", packed([{"t": "refused", "why": "a", "fds": 3}])),
    # An agent that has been silent for ever: the one who asked it got an OverflowError.
    ("store-answer", packed([{"t": "silent", "id": 1, "agent_pid": 1, "seconds": float("inf")}])),
    # A directory outside that of the command.
    ("tunnel-answered", tunnel.answer(1, "a/../../x")),
    # An object in the place of a list: the session ended, and nobody was told why.
    ("dap-mesh", ide.session({"source": {"path": "/a.py"}, "breakpoints": {"line": "x"}})),
]
