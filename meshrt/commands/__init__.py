"""The commands, one in each module: its name is the word that is typed. A new module is a new command.

`meshrt.commandline.table` finds them. Each module holds ``COMMAND``, the declaration, and what it runs. A command with
a larger body names it by ``main="module:function"``: then the declaration loads fast, and the body where it runs.
"""

__all__: list[str] = []
