"""The host agent: one process per host that forks the ranks, watches them, keeps their output and cleans up.

It is started with exec, stays single-threaded and never runs user code. Messages between root and agent, each a
CONTROL frame with address nil (all others are passed on between root and rank)::

    root -> agent
      hello    secret, run_id, directory, run_directory, sys_path, argv, host, root_pid
      spawn    mesh, name, ranks, labels, sizes, env {rank: {..}} or {}, common_env, preload
      stop     mesh, grace (seconds), drain (finish what was sent before?)
      ping     number, at           answered with pong
      kept     cost                 output was written (see printed)
      bye                           the program ends: end everything; the root cleans up the directory itself
    agent -> root
      started  mesh, rank, pid
      gone     mesh, rank, fate (the fields of Fate)
      stopped  mesh                 every rank of the mesh on this host has ended, and what it had started
      output   mesh, rank, err (bool), actor, lines
      printed  mesh, rank, err, data, left_out, done: the same from another machine, as it is for the file
      pulse    mesh, rank, state ("stopped", "busy" or "answering"), stack
      pong     number, at, clock, wall (what its clocks show)
      warning  text

    rank -> agent (and what is for the root)
      pong
      why      text                 why the rank is going to end by itself; becomes part of its fate

A rank: ``forked -> running -> stopping -> gone``; its exit is seen by pidfd, then its output is read to the end, then
``gone`` is sent.
"""

__all__: list[str] = []
