"""The commands of the prompt: `table` lists all of them; each other module implements one group."""

__all__: list[str] = []
