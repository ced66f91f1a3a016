"""What an IDE on all ranks costs a person who works with it, and what it costs the program.

Three processes: the program (:mod:`bench.dap.program`), its router, and the measurement, which plays the IDE with the
client that the tests have (:mod:`tests.dap.ide`).
"""

__all__: list[str] = []
