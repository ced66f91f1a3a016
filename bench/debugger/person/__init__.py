"""The person: a second process, connected to the debugger as people are, that measures."""

__all__: list[str] = []
