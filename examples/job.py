"""A training job that other programs may call while it runs: ``python examples/job.py``, then ``notebook.py``.

It trains until it is told to finish.
"""

from __future__ import annotations

from meshrt import Actor, current_rank, endpoint, get_or_spawn, get_singleton, proc_mesh


class Settings(Actor):
    """What all ranks train with; one for the whole program."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.finished = False

    @endpoint
    def read(self) -> tuple[float, bool]:
        """Return the rate, and whether the job is to finish."""
        return self.rate, self.finished

    @endpoint
    def change(self, *, rate: float | None = None, finished: bool = False) -> None:
        """Change them; ranks see it in their next step."""
        self.rate = self.rate if rate is None else rate
        self.finished = finished


class Trainer(Actor):
    """A model of one weight."""

    def __init__(self) -> None:
        self.settings = get_singleton("settings", Settings)
        self.weight = float(current_rank().rank)
        self.steps = 0

    @endpoint
    def step(self) -> bool:
        """Train for a while; returns whether to go on."""
        rate, finished = self.settings.read.call_one().get()
        self.weight -= rate * (self.weight - 1.0)
        self.steps += 1
        return not finished

    @endpoint
    def loss(self, digits: int = 3) -> float:
        """Return how far off this rank is."""
        return round(abs(self.weight - 1.0), digits)


get_or_spawn("settings", Settings, rate=0.0).get()
trainers = proc_mesh(gpus=4).spawn("trainer", Trainer).get()
print("training", flush=True)
while all(trainers.step.call().get().values()):
    pass
print("finished with a loss of", max(trainers.loss.call().get().values()))
