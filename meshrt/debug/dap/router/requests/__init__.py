"""What an IDE may ask of a session: a class for each request that the router itself reads, with its fields.

A class says what each kind of session does with the request: that of the mesh (`at_mesh`), that of one rank (`at_rank`)
and the one in which ranks are threads (`at_threads`). To add a request, add a class to one of these modules; requests
of no class are passed on by the session of a rank, and refused by the others.

`table`
    the base of these classes, and how a request is read
`setting`, `running`, `looking`
    the requests that set something; that list, resume and pause threads, and leave them; that look at what is stopped
"""

from __future__ import annotations

from meshrt.debug.dap.router.requests import looking, running, setting
from meshrt.debug.dap.router.requests.table import Request, passes_on, read

__all__ = ["Request", "looking", "passes_on", "read", "running", "setting"]
