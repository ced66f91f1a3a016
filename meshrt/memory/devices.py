"""The memory of ranks on devices other than the processor: names, and sums. Plain data in, text out.

A rank that sees one of several devices calls it ``cuda:0``, and its neighbour calls another device so. So the entry of
``CUDA_VISIBLE_DEVICES`` names a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from meshrt.memory.operations import Device, RankRow
from meshrt.memory.units import amount
from meshrt.selection import fold_ranks

__all__ = ["device_name", "device_names", "device_totals", "devices_of", "kept_on_devices"]

#: More devices than these share one line of the totals.
_MOST = 4
_CUDA = "cuda:"


def device_name(device: str, facts: Device) -> str:
    """Return the name of a device on its host: ``"cuda:3"``, or ``"GPU-8a1f..."``."""
    visible = facts.visible or ""
    return _CUDA + visible if visible.isdecimal() else visible or device


def kept_on_devices(row: RankRow) -> int:
    """Return the bytes that the allocator of a rank keeps on all devices."""
    return sum(facts.kept for facts in (row.devices or {}).values())


def device_names(rows: Iterable[RankRow]) -> str:
    """Return the names of all devices of some ranks: ``"cuda:0-3"``."""
    found = {device_name(device, facts) for row in rows for device, facts in (row.devices or {}).items()}
    numbers = [name.removeprefix(_CUDA) for name in found]
    if found and all(map(str.isdecimal, numbers)):
        return _CUDA + fold_ranks(map(int, numbers))
    return ",".join(sorted(found))


def devices_of(rows: Iterable[RankRow]) -> dict[str, int]:
    """Return the bytes that are kept on each device, by host and name: ``"node1 cuda:3"``."""
    found: dict[str, int] = {}
    for row in rows:
        for device, facts in (row.devices or {}).items():
            name = f"{row.host} {device_name(device, facts)}"
            found[name] = found.get(name, 0) + facts.kept
    return found


def device_totals(devices: Mapping[str, int], unit: str) -> Sequence[str]:
    """Return the lines of the sums: one for each device, if there are few."""
    if len(devices) <= _MOST:
        return [f"on {name}: {amount(count, unit)} kept by torch" for name, count in devices.items()]
    most = max(devices, key=lambda name: devices[name])
    return [
        f"on {len(devices)} devices: {amount(sum(devices.values()), unit)} kept by torch; "
        f"the most on {most}: {amount(devices[most], unit)}"
    ]
