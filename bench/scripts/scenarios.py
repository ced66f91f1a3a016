"""The same script under torchrun, with meshrt between both and without it, in turns."""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.protocol import Peer
from bench.processes import descendants, pss
from bench.scenarios import Settings, Values, expect

__all__ = ["SCENARIOS"]

TOY = Path(__file__).with_name("toy.py")
STEPS = 400
PATIENCE = 300.0


async def scripts(peer: Peer, settings: Settings) -> Values:
    """Start, step and memory of a few ranks: the ratios and differences of neighbouring runs."""
    words: Any = await peer.start(settings.ranks)
    taken: dict[str, list[float]] = {"start": [], "step": []}
    for _ in range(settings.repeats(3)):
        plain, joined = (trained(more, settings.ranks, settings.repeats(STEPS)) for more in ((), words))
        taken["start"].append(joined[0] - plain[0])
        taken["step"].append(joined[1] / plain[1])
    with waiting((), settings.ranks) as pids:
        alone = statistics.median(map(pss, pids))
    with waiting(words, settings.ranks) as pids:
        more = statistics.median(map(pss, pids)) - alone
    return {f"scripts_{name}": statistics.median(values) for name, values in taken.items()} | {"scripts_pss": more}


async def scripts_where(peer: Peer, settings: Settings) -> Values:
    """``meshrt where`` at many ranks that wait, from the start of the command to its exit."""
    words: Any = await peer.start(settings.ranks)
    with waiting(words, settings.ranks):
        repeats = range(settings.repeats(10))
        seconds = statistics.median(asked(f"{settings.ranks} ranks of run", "where") for _ in repeats)
        empty = statistics.median(asked("meshrt", "--version") for _ in repeats)
    return {"scripts_where": seconds, "scripts_where_behind": seconds - empty}


def command(more: Sequence[str], ranks: int, folder: str, steps: int) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*torchrun, *more, str(TOY), folder, str(steps)]


def trained(more: Sequence[str], ranks: int, steps: int) -> tuple[float, float]:
    """Return the seconds until the script of the last rank had begun, and those of a step."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        subprocess.run(command(more, ranks, folder, steps), check=True, capture_output=True, timeout=PATIENCE)
        told = facts(folder, ranks)
    return max(each["begun"] for each in told) - begin, statistics.median(each["step"] for each in told)


@contextmanager
def waiting(more: Sequence[str], ranks: int) -> Iterator[list[int]]:
    """Run ranks that wait; yields their pids."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = subprocess.PIPE
        with subprocess.Popen(command(more, ranks, folder, 0), stdout=pipe, stderr=subprocess.STDOUT) as process:
            deadline = time.monotonic() + PATIENCE
            while len([path for path in Path(folder).iterdir() if path.name.isdigit()]) < ranks:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"not all of {ranks} ranks have begun")
                time.sleep(0.05)
            yield [int(each["pid"]) for each in facts(folder, ranks)]
            below = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
            expect(len(below) >= ranks, True, "ranks below torchrun")


def facts(folder: str, ranks: int) -> list[dict[str, float]]:
    return [json.loads(Path(folder, str(rank)).read_text()) for rank in range(ranks)]


def asked(expected: str, *words: str) -> float:
    """Return the seconds of a command, from its start to its exit."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "meshrt", *words], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    expect(expected in done.stdout, True, f"{expected!r} shown")
    return seconds


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {
    "scripts": scripts,
    "scripts_where": scripts_where,
}
