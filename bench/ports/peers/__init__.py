"""Who can be asked."""

__all__: list[str] = []
