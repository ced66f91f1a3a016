"""The debugger in a rank: what stops there, the prompt of a stopped thread, and what is asked of running ones."""

__all__: list[str] = []
