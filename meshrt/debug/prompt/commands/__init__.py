"""The commands of the prompt: `table` has them all, the other modules what each group does."""

__all__: list[str] = []
