"""What a message to a port costs."""

__all__: list[str] = []
