"""The manifests of Kubernetes in ``examples/``: valid by the published schemas, and what meshrt makes of them."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.manifests import DIRECTORY, documents, pod_specs, why_no_manifests
from tests.support.programs import ROOT

pytestmark = pytest.mark.skipif(bool(why_no_manifests()), reason=why_no_manifests())

MANIFESTS = sorted(DIRECTORY.glob("*.yaml"))
#: By kind: the schema of a custom resource.
CUSTOM = {"JobSet": "jobset.json", "PyTorchJob": "pytorchjob.json"}


def check(document: dict[str, Any]) -> None:
    """Raise unless a document is valid; an unknown field is an error, too."""
    if document["kind"] not in CUSTOM:
        kubernetes_validate = importlib.import_module("kubernetes_validate")
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        return
    schema = json.loads((ROOT / "tests" / "support" / "kubernetes" / CUSTOM[document["kind"]]).read_text())
    importlib.import_module("jsonschema").validate(document, schema)
    for job in document["spec"].get("replicatedJobs", []):
        check({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]})
    for group in document["spec"].get("pytorchReplicaSpecs", {}).values():
        check({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": group["template"]})


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_valid(path: Path) -> None:
    for document in documents(path):
        check(document)


@pytest.mark.slow
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_wrong_field_anywhere_is_found(path: Path) -> None:
    """What is checked above can fail: in each map of each document, an unknown field does."""
    *_, document = documents(path)
    found = 0
    for place in _maps(document):
        changed = copy.deepcopy(document)
        _at(changed, place)["noSuchField"] = {}
        with pytest.raises(Exception, match="noSuchField"):
            check(changed)
        found += 1
    assert found > 10


#: What has fields of a user's own choice.
_FREE = ("metadata", "limits", "selector")


def _maps(document: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(document, dict):
        own = [] if place and place[-1] in _FREE else [place]
        return own + [each for key, value in document.items() for each in _maps(value, (*place, key))]
    if isinstance(document, list):
        return [each for number, value in enumerate(document) for each in _maps(value, (*place, number))]
    return []


def _at(document: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def test_an_indexed_job_is_reached_by_the_name_of_its_first_pod() -> None:
    service, job = documents(DIRECTORY / "indexed-job.yaml")
    pod = job["spec"]["template"]["spec"]
    name = job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name} and service["spec"]["clusterIP"] == "None"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert _value(pod, "MESHRT_ROOT") == f"{name}-0.{pod['subdomain']}:40000"
    _check_numbers(job["spec"])


def test_a_jobset_is_reached_by_the_name_of_its_first_pod() -> None:
    (jobset,) = documents(DIRECTORY / "jobset.yaml")
    (group,) = jobset["spec"]["replicatedJobs"]
    pod = group["template"]["spec"]["template"]["spec"]
    subdomain = jobset["spec"]["network"]["subdomain"]
    assert _value(pod, "MESHRT_ROOT") == f"{jobset['metadata']['name']}-{group['name']}-0-0.{subdomain}:40000"
    _check_numbers(group["template"]["spec"])


def test_a_pytorchjob_is_reached_by_the_name_of_its_master() -> None:
    (job,) = documents(DIRECTORY / "pytorchjob.yaml")
    groups = job["spec"]["pytorchReplicaSpecs"]
    assert groups["Master"]["replicas"] == 1
    for group in groups.values():
        (container,) = group["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        assert _value(group["template"]["spec"], "MESHRT_ROOT") == f"{job['metadata']['name']}-master-0:40000"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_secret_is_a_file_that_not_all_users_can_read(path: Path) -> None:
    *_, document = documents(path)
    for pod in pod_specs(document):
        (volume,) = pod["volumes"]
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert volume["name"] == mount["name"] and not volume["secret"]["defaultMode"] & 0o007
        # The file has the name of the key that the first lines of the manifest make.
        assert _value(pod, "MESHRT_SECRET_FILE") == f"{mount['mountPath']}/secret"
        assert f"generic {volume['secret']['secretName']} --from-literal=secret=" in path.read_text()


def _check_numbers(spec: dict[str, Any]) -> None:
    pod = spec["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert str(spec["completions"]) == str(spec["parallelism"]) == _value(pod, "MESHRT_HOSTS")


def _value(pod: dict[str, Any], name: str) -> str:
    (container,) = pod["containers"]
    (value,) = [each["value"] for each in container["env"] if each["name"] == name]
    return str(value)
