"""What each rank of a program is doing, as the root knows it; nobody is asked. Every tool that shows ranks reads it.

`words`
    the vocabulary of states
`states`
    the state of one rank: a word, since when, where
`targets`
    which ranks a person means by the name of an actor and a selection
`chosen`
    ranks that are looked at all together, whichever of their actors is meant
`groups`
    ranks of several meshes, as questions to many ranks take them
`hosts`
    which host agents do not answer
`sources`
    how plug-ins tell what only they know: what a debugger has stopped, what an IDE holds, what ranks have told
`program`
    all of it, once for each root
"""

from __future__ import annotations

__all__: list[str] = []
