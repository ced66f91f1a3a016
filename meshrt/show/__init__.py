"""The output of commands: tables, texts that fit, records for programs; how commands end, and what they fork."""

__all__: list[str] = []
