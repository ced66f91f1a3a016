"""Who lets an IDE attach to all ranks."""

__all__: list[str] = []
