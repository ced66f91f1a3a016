"""Commands of the shell that show what the debugger knows, without its prompt: ``meshrt ps``, ``meshrt logs``."""

__all__: list[str] = []
