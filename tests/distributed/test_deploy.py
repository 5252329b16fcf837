"""The files for clusters in examples/deploy: they are read as Kubernetes, Docker and Dask would read them."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import streamsvm

pytest.importorskip("distributed")

DEPLOY = Path(__file__).parents[2] / "examples/deploy"
PAGE = (Path(__file__).parents[2] / "docs/cluster.md").read_text(encoding="utf-8")


def cluster() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "cluster.yaml").read_text(encoding="utf-8"))
    return found


def container(kind: str) -> dict[str, Any]:
    (found,) = cluster()["spec"][kind]["spec"]["containers"]
    return dict(found)


def test_a_cluster_for_the_operator() -> None:
    found = cluster()
    assert (found["apiVersion"], found["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    assert set(found["spec"]) == {"worker", "scheduler"} and found["spec"]["worker"]["replicas"] > 1
    name, service = found["metadata"]["name"], found["spec"]["scheduler"]["service"]
    assert service["selector"] == {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    ports = {port["name"]: port["containerPort"] for port in container("scheduler")["ports"]}
    assert ports == {"tcp-comm": 8786, "http-dashboard": 8787}  # by these names the operator looks for them
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    assert container("scheduler")["readinessProbe"]["httpGet"]["port"] in ports
    assert container("worker")["image"] == container("scheduler")["image"] == "IMAGE"
    volumes = {volume["name"] for volume in found["spec"]["worker"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container("worker")["volumeMounts"]} == volumes
    assert f"svc/{name}-scheduler 8786:8786" in PAGE and f"daskworkergroup {name}-default" in PAGE


@pytest.mark.parametrize("kind", ["worker", "scheduler"])
def test_commands_are_those_of_dask(kind: str) -> None:
    from importlib import import_module

    command = import_module(f"distributed.cli.dask_{kind}").main
    program, name, *words = container(kind)["args"]
    assert (program, name) == ("dask", kind) and all(isinstance(word, str) for word in words)
    context = command.make_context(name, list(words), resilient_parsing=False)
    if kind == "worker":
        assert context.params["nthreads"] == int(container(kind)["resources"]["limits"]["cpu"])
        assert context.params["local_directory"] == container(kind)["volumeMounts"][0]["mountPath"]


@pytest.mark.parametrize("line", re.findall(r"^dask (?:worker|scheduler|ssh)[^#\n]*", PAGE, re.MULTILINE))
def test_commands_of_the_page_are_those_of_dask(line: str) -> None:
    from importlib import import_module

    _, name, *words = line.split()
    import_module(f"distributed.cli.dask_{name}").main.make_context(name, words)


def test_the_image_has_this_version() -> None:
    first, second = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert first.startswith("FROM python:3.") and second.startswith("RUN pip install ")
    assert f"'streamsvm[dask,s3]=={streamsvm.__version__}'" in second


def test_the_script_for_slurm() -> None:
    """dask_jobqueue is not installed here; settings are ours to check."""
    tree = ast.parse((DEPLOY / "slurm_cluster.py").read_text())
    given = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    settings = streamsvm.load_settings(overrides=ast.literal_eval(given))
    assert settings.solver.name == "newton" and settings.cluster.shards == 32
