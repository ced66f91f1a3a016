"""What runs inside a rank: actors, their mailboxes, the control thread, and the context that user code asks for."""

__all__: list[str] = []
