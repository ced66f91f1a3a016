"""The debugger in the root: the hub between ranks and terminals."""

__all__: list[str] = []
