"""The interface between the runtime and plug-ins, which the runtime does not import."""

__all__: list[str] = []
