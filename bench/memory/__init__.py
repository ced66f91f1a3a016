"""What it costs to see where the memory of a program is."""

__all__: list[str] = []
