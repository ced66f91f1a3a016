"""The store: memory that a process writes once, and all processes of a host map."""

__all__: list[str] = []
