"""The contestants that have a debugger: the program's side of each, one file each."""

__all__: list[str] = []
