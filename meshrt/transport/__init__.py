"""Sockets and who drives them: links, the driver of a process's outgoing calls, directories, terminals."""

__all__: list[str] = []
