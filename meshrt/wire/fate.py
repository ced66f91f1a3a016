"""Until all users name the new place."""

from meshrt.hooks.fate import Fate

__all__ = ["Fate"]
