"""The debugger in the root: it knows every session, and passes requests and events between ranks and terminals."""

__all__: list[str] = []
