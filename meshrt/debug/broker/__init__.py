"""The debugger in the root: it knows every session, and carries what goes between ranks and terminals."""

__all__: list[str] = []
