"""Modules with logic of their own that no unit test of the same path is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.house.sizes import has_logic
from tests.support.sources import Source

__all__ = ["twin", "without_twin"]


def twin(path: str) -> str:
    """Return where the unit tests of a module are: those of ``meshrt/a/b.py`` in ``tests/unit/a/test_b.py``.

    Those of a package itself are named after it, beside its folder; those of ``__main__`` are ``test_main.py``.
    """
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return "/".join(["tests/unit", *parts[1:-1], f"test_{parts[-1].strip('_')}.py"])


def without_twin(sources: Sequence[Source], tests: Collection[str]) -> list[str]:
    """Return the modules with logic, and without a file of unit tests among the paths ``tests``."""
    return [source.path for source in sources if twin(source.path) not in tests and has_logic(source)]
