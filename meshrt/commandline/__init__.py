"""How commands are declared, and how a typed line becomes the arguments of one.

`command`: the declaration. `parser`: a line, or the words of a shell, becomes arguments. `table`: the commands by their
words. `texts`: usage and help. `completion`: what may come next. Each command is a module of `meshrt.commands`.
"""

__all__: list[str] = []
