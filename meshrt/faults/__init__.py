"""A plug-in: faults of ranks that a test has planned (`meshrt.testing`). Loaded by the first plan."""

__all__: list[str] = []
