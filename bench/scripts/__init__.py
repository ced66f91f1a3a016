"""What it costs a script that is not written as actors to run below meshrt, beside torchrun alone."""

__all__: list[str] = []
