"""Collectives of torch.distributed: in which one each rank is, and who has not entered it.

* `facts`: what a rank tells of its process groups.
* `torch_groups`: reads them in a rank.
* `late`: compares the ranks.
* `reports`: tells the root of them, and how a script's device mesh calls the dimensions of its ranks.
* `timeouts`: holds the time-outs of torch while a rank is stopped.

meshrt never imports torch: it looks at what the program has imported.
"""

__all__: list[str] = []
