"""What each rank of a program is doing, as the root knows it; no rank is asked. Every tool that shows ranks reads it.

`words`
    the vocabulary of states
`states`
    the state of one rank: a word, since when, where
`waits`
    who waits for whom
`targets`
    which ranks a user means by the name of an actor and a selection
`chosen`
    ranks whose actors are looked at together
`groups`
    ranks of several meshes, in the form that requests to many ranks take, and whatever else has a key
`hosts`
    which host agents do not answer
`sources`
    how plug-ins report what only they know: what a debugger has stopped, what an IDE holds, what ranks have reported
`program`
    all of it, one object for each root
"""

from __future__ import annotations

__all__: list[str] = []
