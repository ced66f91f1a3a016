"""The manifests of ``examples/kubernetes``: their documents, and what Kubernetes makes of them for a pod."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.programs import ROOT

__all__ = ["DIRECTORY", "container", "documents", "environment_of", "pod_specs", "why_no_manifests"]

DIRECTORY = ROOT / "examples" / "kubernetes"


def why_no_manifests() -> str:
    """Return why manifests cannot be read here; "" if they can."""
    missing = [name for name in ("yaml", "kubernetes_validate") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} cannot be imported (pip install --group kubernetes)" if missing else ""


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a manifest."""
    import yaml  # type: ignore[import-untyped, unused-ignore]  # optional: the group kubernetes

    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def pod_specs(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the specs of pods in a document, wherever they are in it."""
    if "containers" in document:
        yield dict(document)
        return
    for value in document.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from pod_specs(part)


def container(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container that all pods of a document have."""
    first, *others = [spec["containers"][0] for spec in pod_specs(document)]
    assert all(other == first for other in others)
    found: dict[str, Any] = first
    return found


def environment_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what the manifest puts into the environment of its pods."""
    return {each["name"]: each["value"] for each in container(document)["env"]}
