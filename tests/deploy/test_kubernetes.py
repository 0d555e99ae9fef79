"""The manifests under deploy/kubernetes: valid, and in agreement with each other and with the command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from weft.cli.main import parser

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
OBJECTS: list[dict[str, Any]] = [
    one
    for path in sorted(FOLDER.glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text())
    if one["kind"] != "Kustomization"
]


def find(kind: str, name: str) -> dict[str, Any]:
    return next(one for one in OBJECTS if (one["kind"], one["metadata"]["name"]) == (kind, name))


def container(kind: str, name: str) -> dict[str, Any]:
    (one,) = find(kind, name)["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = one
    return found


WORKLOADS = [("StatefulSet", "weft-head"), ("Deployment", "weft-workers")]


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
@pytest.mark.filterwarnings("ignore")
def test_every_object_is_valid_by_the_schema_of_kubernetes(one: dict[str, Any]) -> None:
    import kubernetes_validate

    kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_the_kustomization_names_every_file_but_the_secret() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml", "token.yaml"]) == sorted(path.name for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_selectors_and_labels_agree(kind: str, name: str) -> None:
    spec = find(kind, name)["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_service_leads_to_the_head_and_the_workers_to_the_service() -> None:
    service = find("Service", "weft-head")
    head = find("StatefulSet", "weft-head")["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert head["serviceName"] == "weft-head"
    assert service["spec"]["selector"].items() <= head["template"]["metadata"]["labels"].items()
    port = service["spec"]["ports"][0]["port"]
    assert port == container("StatefulSet", "weft-head")["ports"][0]["containerPort"]
    command = container("Deployment", "weft-workers")["command"]
    assert command[command.index("--address") + 1] == f"weft-head:{port}"


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_the_commands_are_ones_that_weft_knows(kind: str, name: str) -> None:
    one = container(kind, name)
    values = {"$(POD_IP)": "10.0.0.1", "$(CPUS)": "2"}
    commands = [[values.get(word, word) for word in one["command"]]]
    commands += [one[probe]["exec"]["command"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
    if "lifecycle" in one:
        shell, flag, line = one["lifecycle"]["preStop"]["exec"]["command"]
        assert (shell, flag) == ("sh", "-c")
        commands.append(shlex.split(line))
    for program, *arguments in commands:
        assert program == "weft"
        parser().parse_args(arguments)


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_the_token_comes_from_the_secret_and_from_nowhere_else(kind: str, name: str) -> None:
    (variable,) = [one for one in container(kind, name)["env"] if one["name"] == "WEFT_TOKEN"]
    reference = variable["valueFrom"]["secretKeyRef"]
    secret = find("Secret", reference["name"])
    assert reference["key"] in secret["stringData"]
    assert secret["stringData"]["token"] == "REPLACE-ME"


def test_a_worker_has_time_to_drain_before_it_is_killed() -> None:
    pod = find("Deployment", "weft-workers")["spec"]["template"]["spec"]
    (_, _, line) = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    options = parser().parse_args(shlex.split(line)[1:])
    assert options.deadline < pod["terminationGracePeriodSeconds"]
    assert options.node == "$POD_IP:6380"


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_the_pods_have_no_rights_that_they_do_not_need(kind: str, name: str) -> None:
    pod = find(kind, name)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container(kind, name)["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_network_policy_opens_the_ports_of_the_nodes_and_no_others() -> None:
    (rule,) = find("NetworkPolicy", "weft")["spec"]["ingress"]
    ports = {container(kind, name)["ports"][0]["containerPort"] for kind, name in WORKLOADS}
    assert {one["port"] for one in rule["ports"]} == ports
