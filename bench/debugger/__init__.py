"""What the debuggers of meshrt and Monarch cost a person who sits at them, and what they cost the program.

A run has two sides: the program, in the process of the measurement (:mod:`bench.debugger.scenarios`), and a person
at a terminal of their own, in a second process (:mod:`bench.debugger.person`), who measures.
"""

__all__: list[str] = []
