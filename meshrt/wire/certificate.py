"""The certificate of a program: each of its processes shows it, and trusts no other."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Certificate"]


class Certificate(NamedTuple):
    """A certificate and its key, both in PEM. A secret, as it lets a process into the program's connections."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Certificate(***)"
