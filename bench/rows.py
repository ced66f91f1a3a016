"""The rows of the table: what each is called, which scenario yields it, and the bars that it has to hold.

The bars are those of ``docs/benchmarks.md``. A bar against a peer compares within a round and takes the
median over the rounds, so load that comes and goes weighs on both sides.
"""

from typing import NamedTuple

__all__ = ["ON_REQUEST", "Bar", "Row", "choose", "table_rows"]

UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "/s": 1.0, "MiB": 1.0, "x": 1.0, "": 1.0}
"""Factor from the value that a scenario yields (seconds, MiB, a ratio, a count) to the unit that is shown."""

ON_REQUEST = ("large", "hosts_large")
"""Scenarios that are run only where their rows are asked for: they need more memory than most machines have."""

STOPPED = 64
IDE = 16
SCRIPT = 4
LARGE = 1024
HOSTS_RANKS = 16
LARGE_HOSTS = 64


class Bar(NamedTuple):
    """A limit: of the ratio meshrt / peer, or, without a peer, of the value itself in the shown unit."""

    relation: str
    limit: float
    peer: str | None = None

    def met(self, found: float) -> bool:
        """Say whether the ratio or value holds the bar."""
        return found <= self.limit if self.relation == "<=" else found >= self.limit

    def text(self, unit: str) -> str:
        """Return the bar as it is shown, such as ``<= 1/4 monarch``."""
        if self.peer is None:
            return f"{self.relation} {self.limit:g} {unit}".strip()
        size = f"{self.limit:g}x" if self.limit >= 1 else f"1/{1 / self.limit:g}"
        return f"{self.relation} {size} {self.peer}"


class Row(NamedTuple):
    """One line of the table; ``value`` is the key under which its scenario yields it."""

    key: str
    label: str
    unit: str
    scenario: str
    ranks: int
    value: str
    bars: tuple[Bar, ...] = ()

    def shown(self, value: float) -> float:
        """Convert a value of the scenario into the unit of this row."""
        return value * UNITS[self.unit]


def table_rows(sizes: tuple[int, ...], ranks: int) -> list[Row]:
    """Return all rows, in order: cold start at each of ``sizes``, the rest with ``ranks`` actors."""
    cold_bars = (Bar("<=", 1.3, "mp"), Bar("<=", 1 / 4, "monarch"))
    rows = [
        Row(f"cold_{n}", f"cold start of {n}, to exit", "s", "cold", n, "cold", cold_bars if n == 16 else ())
        for n in sizes
    ]

    def add(scenario: str, value: str, label: str, unit: str, *bars: Bar) -> None:
        rows.append(Row(value, label, unit, scenario, ranks, value, bars))

    add(
        "calls", "one_p50", "call to one, p50", "us",
        Bar("<=", 2, "mp"), Bar("<=", 1 / 8, "monarch"), Bar("<=", 1 / 3, "xoscar"),
    )  # fmt: skip
    add("calls", "one_p99", "call to one, p99", "us")
    add("calls", "all_p50", f"call to {ranks}, p50", "us", Bar("<=", 2, "floor"), Bar("<=", 0.1, "monarch"))
    add("calls", "all_p99", f"call to {ranks}, p99", "us")
    add(
        "calls", "rate_one", "calls to one, 1000 in flight", "/s",
        Bar(">=", 10, "monarch"), Bar(">=", 5, "xoscar"),
    )  # fmt: skip
    add("calls", "rate_all", f"calls to {ranks}, 1000 in flight", "/s")
    rows.append(Row("port_send", "message to a port / broadcast to one", "x", "ports", 1, "port_send", (Bar("<=", 1),)))
    for size in ("1", "64"):
        large = size == "64"
        third = tuple(Bar("<=", 1 / 3, peer) for peer in ("mp", "monarch", "ray", "xoscar"))
        bars = (Bar("<=", 1, "ray"), Bar("<=", 1 / 6, "monarch")) if large else third
        add("payload", f"put_one_{size}m", f"{size} MiB to one", "ms")
        add("payload", f"put_all_{size}m", f"{size} MiB to {ranks}", "ms", *bars)
        add("payload", f"get_one_{size}m", f"{size} MiB from one", "ms")
        back = (Bar("<=", 45), Bar("<=", 1, "ray")) if large else ()
        add("payload", f"back_one_{size}m", f"{size} MiB to one and back", "ms", *back)
    add("idle", "pss_rank", "memory of a rank, PSS", "MiB", Bar("<=", 12))
    add("idle", "pss_total", f"memory of all, {ranks} ranks, PSS", "MiB")
    add("idle", "stop", f"stop() of {ranks}, to all gone", "s", Bar("<=", 0.2))
    add("orphans", "orphans_0.5", "orphans 0.5 s after kill -9", "")
    add("orphans", "orphans_1", "orphans 1 s after kill -9", "", Bar("<=", 0))
    add("orphans", "orphans_2", "orphans 2 s after kill -9", "")
    bar = Bar("<=", 20)
    rows.append(Row("death", "death during a call, to the error", "ms", "death", 4, "death", (bar,)))
    return rows + debugger_rows()


def debugger_rows() -> list[Row]:
    """Return the rows of the debugger and of the memory view, and those of a large mesh."""
    rows: list[Row] = []

    def add(value: str, label: str, unit: str, limit: float) -> None:
        rows.append(Row(value, label, unit, "debugger", STOPPED, value, (Bar("<=", limit),)))

    add("debug_list", f"list, {STOPPED} stopped", "ms", 5)
    add("debug_attach", "attach, to its prompt", "ms", 1)
    add("debug_print", "p at one rank", "ms", 1)
    add("debug_cast", f"cast n to {STOPPED}, until all have moved", "ms", 60)
    add("debug_where", f"where, {STOPPED} stopped", "ms", 100)
    add("debug_where_blocked", f"where, {STOPPED} blocked", "ms", 100)
    add("debug_interrupt", f"interrupt of {STOPPED} blocked, until all are stopped", "ms", 50)
    add("debug_start", "client start, to its prompt", "s", 0.4)
    add("debug_call", "call, debugger loaded / not", "x", 1.05)
    add("debug_loop", "loop, stopped before / never", "x", 1.05)
    for value, label, unit, limit in (
        ("memory_view", f"memory, {STOPPED} ranks, 20,000 references", "s", 0.5),
        ("memory_site", "call site of a put", "us", 3),
        ("memory_lists", "deep size of a million lists", "ms", 0),
        ("memory_lists_ratio", "... to guppy's time", "x", 2),
    ):
        bars = (Bar("<=", limit),) if limit else ()
        rows.append(Row(value, label, unit, "memory", STOPPED, value, bars))
    rows += ide_rows() + hosts_rows() + script_rows()
    large = {"spawn": "spawn of", "call": "call to", "list": "list,", "where": "where,", "cast": "cast n to"}
    for word, label in large.items():
        key = f"large_{word}"
        rows.append(Row(key, f"{label} {LARGE}", "s", "large", LARGE, key, (Bar("<=", 3),)))
    return rows


def ide_rows() -> list[Row]:
    """Return the rows of an IDE on all ranks."""
    rows: list[Row] = []

    def add(scenario: str, ranks: int, value: str, label: str, unit: str, *bars: Bar) -> None:
        rows.append(Row(value, label, unit, scenario, ranks, value, bars))

    add("dap", IDE, "dap_attach", f"IDE attached to {IDE}", "s", Bar("<=", 5))
    add("dap", IDE, "dap_again", f"IDE attached to {IDE} again", "s")
    add("dap_many", STOPPED, "dap_many_sessions", f"IDE attached to {STOPPED}, a session each", "s")
    add("dap_many", STOPPED, "dap_many_threads", f"IDE attached to {STOPPED}, as threads", "s")
    add("dap", IDE, "dap_hit", f"call of {IDE}, until all are stopped in the IDE", "ms")
    add("dap", IDE, "dap_continue", "continue in the IDE, answered", "ms", Bar("<=", 100))
    add("dap", IDE, "dap_continue_worst", "... the slowest", "ms", Bar("<=", 100))
    add("dap", IDE, "dap_pause", "pause of a rank that blocks, until it stands", "ms")
    add("dap_cost", 1, "dap_call", "call, a port without an IDE / none", "x", Bar("<=", 1.05))
    add("dap_cost", 1, "dap_noise", "... none / none", "x")
    add("dap_cost", 1, "dap_loop", "speed of a loop in an IDE / before", "x")
    add("dap_cost", 1, "dap_loop_after", "speed of a loop after an IDE / before", "x", Bar(">=", 0.95))
    add("dap_cost", 1, "dap_loop_noise", "... without an IDE, later / before", "x")
    return rows


def script_rows() -> list[Row]:
    """Return the rows of a script that is not written as actors, under torchrun."""

    def row(scenario: str, ranks: int, value: str, label: str, unit: str, *bars: Bar) -> Row:
        return Row(value, label, unit, scenario, ranks, value, bars)

    return [
        row("scripts", SCRIPT, "scripts_start", f"start of {SCRIPT} scripts, behind torchrun's", "s", Bar("<=", 0.3)),
        row("scripts", SCRIPT, "scripts_step", "step of it / under torchrun alone", "x", Bar("<=", 1.01)),
        row("scripts", SCRIPT, "scripts_pss", "memory of a rank, behind torchrun's, PSS", "MiB", Bar("<=", 6)),
        row("scripts_where", STOPPED, "scripts_where", f"meshrt where at {STOPPED} ranks of a script", "s"),
        row("scripts_where", STOPPED, "scripts_where_behind", "... behind meshrt --version", "s", Bar("<=", 0.1)),
    ]


def hosts_rows() -> list[Row]:
    """Return the rows of a program whose hosts are other machines."""
    rows: list[Row] = []

    def add(scenario: str, value: str, label: str, unit: str, *bars: Bar) -> None:
        ranks = LARGE if scenario == "hosts_large" else HOSTS_RANKS
        rows.append(Row(value, label, unit, scenario, ranks, value, bars))

    add("hosts", "hosts_start", f"start of {HOSTS_RANKS} on 4 machines, to all answered", "s")
    add("hosts", "hosts_start_behind", "... behind the joining of the agents", "ms")
    add("hosts_ray", "hosts_ray_start", f"start of {HOSTS_RANKS} on 4 nodes of Ray, to all answered", "s")
    add("hosts_ray", "hosts_ray_behind", "... behind the joining of the agents", "ms", Bar("<=", 150))
    add("hosts", "hosts_one", "call to one on another machine, p50", "us")
    add("hosts", "hosts_one_unix", "... to one on this machine", "x", Bar("<=", 2))
    add("hosts", "hosts_one_tls", "... to a round trip by TLS alone", "x", Bar("<=", 1.3))
    add("hosts", "hosts_all", f"call to {HOSTS_RANKS} on 4 machines, p50", "us")
    add("hosts", "hosts_all_unix", "... to as many on this machine", "x", Bar("<=", 2))
    add("hosts", "hosts_array", "64 MiB to all of them", "ms", Bar("<=", 1, "ray"))
    add("hosts", "hosts_sent", "... bytes that the script's machine sends", "x", Bar("<=", 1.05))
    add("hosts", "hosts_array_limited", "64 MiB to all of them, at 1 Gb/s", "ms")
    add("hosts", "hosts_array_ratio_limited", "... to one transfer by TCP alone", "x", Bar("<=", 1.2))
    add("hosts", "hosts_sent_limited", "... bytes that the script's machine sends", "x", Bar("<=", 1.05))
    add("hosts_lost", "hosts_gone", "cut cable, to the end of the ranks", "s", Bar("<=", 10))
    add("hosts_lost", "hosts_gone_ratio", "... to the time to the error", "x", Bar("<=", 1))
    add("hosts_lost", "hosts_lost", "cut cable, to the error", "s", Bar(">=", 10), Bar("<=", 12))
    add("hosts_death", "hosts_death", "death of a rank on another machine, to the error", "ms", Bar("<=", 20))
    add("hosts_death", "hosts_death_worst", "... the slowest", "ms")
    add("hosts_death", "hosts_death_agent", "death of an agent, to the error", "ms", Bar("<=", 20))
    add("hosts_death", "hosts_death_agent_worst", "... the slowest", "ms")
    many = f"{LARGE} on {LARGE_HOSTS} machines"
    add("hosts_large", "many_start", f"start of {many}, to all answered", "s")
    add("hosts_large", "many_start_ratio", "... to that of as many on this machine", "x", Bar("<=", 1.5))
    add("hosts_large", "many_behind", "... behind the joining of the agents", "s")
    add("hosts_large", "many_behind_ratio", "... to the start on this machine", "x", Bar("<=", 1.5))
    add("hosts_large", "many_list", f"list, {many}", "ms", Bar("<=", 10))
    add("hosts_large", "many_where", f"where, {many}", "ms", Bar("<=", 300))
    add("hosts_large", "many_cast", f"cast n to {many}", "s")
    add("hosts_large", "many_left", "processes left on the machines", "", Bar("<=", 0))
    return rows


def choose(rows: list[Row], names: tuple[str, ...]) -> list[Row]:
    """Return the rows with one of the names: a key, a scenario, or how keys begin (``put``, ``one``).

    Raises:
        ValueError: A name that no row has.
    """
    chosen: set[str] = set()
    for name in names:
        found = {row.key for row in rows if name in (row.key, row.scenario) or row.key.startswith(f"{name}_")}
        if not found:
            known = ", ".join(dict.fromkeys(key for row in rows for key in (row.scenario, row.key)))
            raise ValueError(f"no row is called {name!r}; there are {known}")
        chosen |= found
    return [row for row in rows if row.key in chosen]
