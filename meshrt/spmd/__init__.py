"""Scripts that are not written as actors: each rank runs the same script, as one call of an actor ``main``."""

__all__: list[str] = []
