"""Sockets and who drives them, directories and files, and what the kernel tells of processes.

`link`, `outlink`, `driver`, `waiting`, `interrupts`
    one connection, one to a rank, all outgoing calls of a process, who waits for them, and Ctrl-C meanwhile
`door`, `refusals`, `loopback`
    who is let in: a listening socket, how refusals are logged, whose the other end of a TCP connection is
`dropping`, `faults`, `fate`
    what a peer that does not read costs; how a failure of a rank is told, and how its process has ended
`paths`, `places`, `dirlock`, `directories`, `writing`
    paths that no other user can redirect; which directories are used; that a program uses one; the two directories of a
    program; the only way to write a file
`kernel`, `reserve`, `rootpipe`
    a process by its number; descriptors for a look although none is free; the end of the root, told by the kernel
`process`, `threads`, `clock`
    the runtime of this process, its threads, and a clock that stands still while a person debugs
`tools`, `helper`, `launcher`
    the way of terminals to a program; how processes of this package are started; what started the script (torchrun)
"""

__all__: list[str] = []
