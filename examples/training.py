"""A training run in miniature in which one of 16 ranks goes wrong: ``python training.py hang``, ``wrong`` or ``crash``.

What to look for, and how, is told in docs/debugger.md. There is no breakpoint() in this program.
"""

import queue
import sys
import threading
import time

from meshrt import Actor, current_rank, endpoint, proc_mesh

fault = sys.argv[1] if len(sys.argv) > 1 else "hang"
if fault not in ("hang", "wrong", "crash"):
    sys.exit(f"training.py hang|wrong|crash, not {fault}")


class Trainer(Actor):
    def __init__(self, fault: str) -> None:
        self.rank = current_rank().rank
        self.fault = fault
        self.config = {"lr": 0.1, "momentum": 0.9}
        if fault == "wrong" and self.rank == 6:
            self.config["lr"] = 10.0
        self.weight = 1.0
        self.loss = 1.0
        self.batches: queue.Queue[float] = queue.Queue(maxsize=4)
        self.disk = threading.Lock()
        threading.Thread(target=self.load, name="loader", daemon=True).start()

    def load(self) -> None:
        number = 0
        while True:
            if self.fault == "hang" and self.rank == 13 and number == 20:
                self.disk.acquire()  # and nobody gives it back
            with self.disk:
                batch = 0.5
            self.batches.put(batch)
            number += 1

    def next_batch(self) -> float:
        return self.batches.get()

    @endpoint
    def step(self, number: int) -> float:
        batch = self.next_batch()
        if self.fault == "crash" and self.rank == 9 and number == 30:
            batch = 0.0
        gradient = self.weight / batch
        self.weight -= self.config["lr"] * gradient * 0.01
        self.loss = abs(self.weight)
        time.sleep(0.01)
        return self.loss


trainer = proc_mesh(hosts=4, gpus=4).spawn("trainer", Trainer, fault).get()
for number in range(100_000):
    losses = trainer.step.call(number).get()
    if number % 50 == 0:
        print(f"step {number}: mean loss {sum(losses.values()) / len(losses):.4f}", flush=True)
