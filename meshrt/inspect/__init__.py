"""Inspection of a running program: where its ranks are, and which of them are blocked.

A plug-in: ranks load `meshrt.inspect.rank` at their first pulse; the root loads `meshrt.inspect.root` at the first
report.

`records`
    what a rank answers about its threads and tasks
`tree`
    merges the answers of many ranks
`merged`
    the merged answer, and who waits for whom
`operations`
    what ranks report, and what terminals ask
"""

__all__: list[str] = []
