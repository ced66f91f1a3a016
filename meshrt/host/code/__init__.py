"""Code of the script on other machines: what is not there is fetched from the root.

::

    a rank: import --> finder.py --> asking.py --unix socket--> relay.py, in the agent --control link--> the root
            traceback, debugger --> texts.py -^

The finder is part of the agent, too, which never asks: so every process that it forks has it.
"""

__all__: list[str] = []
