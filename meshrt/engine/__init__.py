"""Engines place one host agent per host. Everything else is the same code for all of them."""

__all__: list[str] = []
