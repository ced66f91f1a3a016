"""The figures of the structure of the code: ``make house`` prints them, ``tests/test_house.py`` keeps them.

All are computed from the sources of ``meshrt/``: nothing is imported.
"""

__all__: list[str] = []
