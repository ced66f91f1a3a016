"""How commands show what they know: tables, texts that fit, records for programs, exit codes."""

__all__: list[str] = []
