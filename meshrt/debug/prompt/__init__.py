"""The debugger at a terminal: lines in, text or JSON out."""

__all__: list[str] = []
