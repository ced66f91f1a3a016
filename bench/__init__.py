"""Benchmarks: meshrt beside its peers, measured in one run on one machine.

``python -m bench`` measures and prints one table; ``docs/benchmarks.md`` says how to read it.
"""

__all__: list[str] = []
