"""What is measured of meshrt's debugger, beside what is measured of every one."""

import socket
import time
from pathlib import Path

from bench.debugger.person.acts import Scene, at_a_breakpoint, median_of
from bench.debugger.person.cost import cost
from bench.debugger.person.meshrt_desk import PATIENCE, MeshrtDesk
from bench.debugger.person.startup import start_to_prompt
from bench.scenarios import Values

__all__ = ["ACTS"]

SETTLE = 0.1


def stopped(scene: Scene) -> Values:
    """All ranks stand at their breakpoint."""
    pid, settings = int(scene.address), scene.settings
    desk = MeshrtDesk(pid)
    desk.wait(settings.ranks)
    values = at_a_breakpoint(desk, settings)
    values["debug_where"] = median_of(lambda: desk.where(settings.ranks, "walk"), settings.repeats(30))
    values["debug_start"] = median_of(lambda: start_to_prompt(pid), settings.repeats(10))
    desk.go_on()
    desk.close()
    return values


def blocked(scene: Scene) -> Values:
    """All ranks wait in a ``recv``, and wait on after each interrupt."""
    ranks, repeats = scene.settings.ranks, scene.settings.repeats
    inboxes = wait_for_sockets(scene)
    desk = MeshrtDesk(int(scene.address))
    values = {"debug_where_blocked": median_of(lambda: desk.where(ranks, "receive"), repeats(30))}
    values["debug_interrupt"] = median_of(lambda: desk.interrupt(ranks), repeats(10), before=settle, after=desk.go_on)
    desk.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for inbox in inboxes:
            sender.sendto(b"!", str(inbox))
    return values


def wait_for_sockets(scene: Scene) -> list[Path]:
    """Wait until every rank has made the socket from which it reads, and return them."""
    deadline = time.monotonic() + PATIENCE
    while len(inboxes := list(Path(scene.folder).iterdir())) < scene.settings.ranks:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {len(inboxes)} of {scene.settings.ranks} ranks receive")
        time.sleep(0.01)
    settle()
    return inboxes


def settle() -> None:
    """Let ranks that go on reach the call in which they wait."""
    time.sleep(SETTLE)


def large(scene: Scene) -> Values:
    """All ranks of a large mesh stand at their breakpoint."""
    ranks, repeats = scene.settings.ranks, scene.settings.repeats
    desk = MeshrtDesk(int(scene.address))
    desk.wait(ranks)
    values = {
        "large_list": median_of(desk.show, repeats(10)),
        "large_where": median_of(lambda: desk.where(ranks, "walk"), repeats(10)),
        "large_cast": median_of(lambda: desk.cast("n", ranks), repeats(10)),
    }
    desk.go_on()
    desk.close()
    return values


ACTS = {"stopped": stopped, "blocked": blocked, "large": large, "cost": cost}
