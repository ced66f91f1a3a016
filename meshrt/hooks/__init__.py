"""What a plug-in may see of the runtime, and how it is reached without being imported."""

__all__: list[str] = []
