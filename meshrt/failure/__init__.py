"""Why a program failed: records of every way to end, the causes between them, and one report.

::

    rank       an exception -> capture -> event ``failure.record``        (`meshrt.failure.rank`)
    agent      a process that ended -> its fate                           (`meshrt.host`)
    root       records -> incident -> verdict -> report and file          (`meshrt.failure.root`)
    launcher   early and at last, the cause among its workers             (`meshrt.failure.lastwords`, `.telling`)
    afterwards ``meshrt postmortem``                                      (`meshrt.failure.postmortem`)

An incident: ``(nothing) -> open`` with the first record, when it asks the other ranks for their stacks; ``open ->
closed`` when no failure has come for a while. Its file is written as soon as the stacks have come, and again with later
failures.

`meshrt.failure.causes` decides what caused what. It is pure; so are the groups and the text of the report. This package
is a plug-in: the runtime loads it by name at the first failure.
"""

__all__: list[str] = []
