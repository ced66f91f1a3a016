"""The debugger in a rank: what stops there, the prompt of a stopped thread, and requests to running ranks."""

__all__: list[str] = []
