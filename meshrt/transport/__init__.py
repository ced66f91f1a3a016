"""Sockets and the threads that read them, directories and files, and what the kernel tells of processes.

`driver`, `linktable`, `outlink`, `link`
    all outgoing calls of a process, put together; its links; the states of one link; one connection
`dialling`, `reading`, `disconnects`, `lostlinks`, `queues`
    connecting; answers; connections that have ended; ranks that have ended; what was sent and not written yet
`waiting`, `pending`, `waits`, `clock`, `interrupts`
    which thread reads; what is waited for; the waits of a process; a clock that a debugger suspends; Ctrl-C
`tree`, `fate`, `dropping`
    the control tree, as links and calls need it; how a rank has ended; what a peer that does not read costs
`acceptor`, `refusals`, `loopback`
    a listening socket; how refused connections are logged; the user at the other end of a TCP connection
`paths`, `places`, `dirlock`, `directories`, `writing`
    paths that no other user can redirect; which directories are used; that a program uses one; the two directories of a
    program; the only way to write a file
`kernel`, `reserve`, `rootpipe`
    a process by its number; descriptors for a look although none is free; the end of the root, told by the kernel
`process`, `threads`
    the runtime of this process, and its threads
`tools`, `helper`, `launcher`
    the way of terminals to a program; how processes of this package are started; what started the script (torchrun)
"""

__all__: list[str] = []
