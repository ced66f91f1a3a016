"""The output of commands: tables, texts that fit, records for programs, exit codes."""

__all__: list[str] = []
