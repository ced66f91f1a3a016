"""What a notebook does with a job that runs, ``job.py``; the job's classes are not imported here."""

from __future__ import annotations

import meshrt

with meshrt.connect() as job:
    print(*(actor.name for actor in job.actors))
    trainer, settings = job.actor("trainer"), job.actor("settings")
    print(trainer.loss)
    print("loss", trainer.loss.call(digits=1).get().values())

    settings.change.call_one(rate=0.5).get()
    while max(trainer.slice(gpus=slice(2, 4)).loss.call().get().values()) > 0.01:
        pass
    print("loss", trainer.loss.call(digits=1).get().values())

    settings.change.call_one(finished=True).get()
