"""The manifests are valid, and start the server of serving/embedded/flags.py as closed as compose does."""

import copy
import re
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from serving.embedded.flags import ServerFlags, server_flags

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
VERSIONS = ["1.30", "1.37"]
SECURE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
USER = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


def read(path):
    return yaml.safe_load((FOLDER / path).read_text())


def patched(document, operations):
    """The document after a JSON patch of the operations add, replace and remove."""
    made = copy.deepcopy(document)
    for operation in operations:
        *way, last = operation["path"].strip("/").split("/")
        place = made
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]
        key = int(last) if isinstance(place, list) else last
        if operation["op"] != "add":
            place[key]  # it is there
        if operation["op"] == "remove":
            del place[key]
        else:
            place[key] = operation["value"]
    return made


def with_s3():
    """The resources of the overlay s3, by kind."""
    made = BASE.copy()
    for patch in read("s3/kustomization.yaml")["patches"]:
        kind, change = patch["target"]["kind"], yaml.safe_load(patch["patch"])
        assert made[kind]["metadata"]["name"] == patch["target"]["name"]
        if isinstance(change, list):
            made[kind] = patched(made[kind], change)
        else:
            assert change.pop("$patch") == "delete"
            del made[kind]
    return made


BASE = {
    (resource := read(f"base/{name}"))["kind"]: resource
    for name in read("base/kustomization.yaml")["resources"]
}
RUNTIME, SERVICE = read("kserve/serving-runtime.yaml"), read("kserve/inference-service.yaml")


def pod(resource):
    return resource["spec"]["template"]["spec"]


def runtime_pod():
    """The pod that KServe makes of the runtime, but for what it adds itself."""
    parts = {name: RUNTIME["spec"][name] for name in ("containers", "volumes")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": parts}


def test_every_manifest_belongs_to_the_base():
    assert {f"base/{name}" for name in read("base/kustomization.yaml")["resources"]} == {
        str(path.relative_to(FOLDER))
        for path in FOLDER.glob("base/*")
        if path.name != "kustomization.yaml"
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resources", [BASE, with_s3(), {"Pod": runtime_pod()}])
def test_the_manifests_are_valid(resources, version):
    for resource in resources.values():
        kubernetes_validate.validate(resource, version, strict=True)


def test_an_unknown_field_is_found():
    wrong = patched(BASE["Deployment"], [{"op": "add", "path": "/spec/replica", "value": 2}])
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def text(**more):
    return {"type": "string", "minLength": 1, **more}


def fields(required, **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


# Written from the reference of KServe 0.16, as far as the manifests use it.
NAMES = {"type": "object", "additionalProperties": text()}
METADATA = fields(["name"], name=text(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$"), annotations=NAMES)
COUNT = {"type": "integer", "minimum": 0}
PROTOCOL = {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}
KSERVE = {
    "ServingRuntime": fields(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "serving.kserve.io/v1alpha1"},
        kind=text(),
        metadata=METADATA,
        spec=fields(
            ["containers", "supportedModelFormats"],
            supportedModelFormats={
                "items": fields(
                    ["name"],
                    name=text(),
                    version=text(),
                    autoSelect={"type": "boolean"},
                    priority={"type": "integer", "minimum": 1},
                )
            },
            protocolVersions={"items": PROTOCOL},
            annotations=NAMES,
            containers={"type": "array", "contains": {"properties": {"name": {"const": "kserve-container"}}}},
            volumes={"type": "array"},
        ),
    ),
    "InferenceService": fields(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "serving.kserve.io/v1beta1"},
        kind=text(),
        metadata=METADATA,
        spec=fields(
            ["predictor"],
            predictor=fields(
                ["model"],
                minReplicas=COUNT,
                maxReplicas=COUNT,
                scaleMetric={"enum": ["cpu", "memory", "concurrency", "rps"]},
                scaleTarget=COUNT,
                model=fields(
                    ["modelFormat", "storageUri"],
                    runtime=text(),
                    modelFormat=fields(["name"], name=text(), version=text()),
                    protocolVersion=PROTOCOL,
                    storageUri=text(pattern="^(pvc|s3|gs|https?)://"),
                    env={"items": fields(["name", "value"], name=text(), value=text())},
                ),
            ),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("resource", [RUNTIME, SERVICE], ids=lambda resource: resource["kind"])
def test_the_manifests_of_kserve_are_valid(resource):
    jsonschema.validate(resource, KSERVE[resource["kind"]])
    wrong = copy.deepcopy(resource)
    wrong["spec"]["storage"] = "s3"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, KSERVE[resource["kind"]])


def test_the_service_uses_the_runtime():
    model = SERVICE["spec"]["predictor"]["model"]
    assert model["runtime"] == RUNTIME["metadata"]["name"]
    assert model["modelFormat"]["name"] == RUNTIME["spec"]["supportedModelFormats"][0]["name"]
    assert model["protocolVersion"] in RUNTIME["spec"]["protocolVersions"]
    assert [entry["name"] for entry in model["env"]] == ["MODEL"]


CONTAINERS = {
    "base": (pod(BASE["Deployment"])["containers"][0], "/models", 8000, 8001),
    "s3": (pod(with_s3()["Deployment"])["containers"][0], "s3://bucket/models", 8000, 8001),
    "kserve": (RUNTIME["spec"]["containers"][0], "/mnt/models", 8080, 9000),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_flags_are_those_of_the_embedded_server(name):
    container, models, http, grpc = CONTAINERS[name]
    flags = ServerFlags(
        models, ("$(MODEL)",), "$(TRITON_ADMIN_KEY)", http, grpc, address="0.0.0.0"  # noqa: S104
    )  # fmt: skip
    assert container["args"] == ["tritonserver", *server_flags(flags)]
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {http, grpc, flags.metrics_port}


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_the_flags_name_is_in_the_environment(name):
    container = CONTAINERS[name][0]
    named = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
    given = {entry["name"]: entry for entry in container["env"]}
    if name == "kserve":
        given |= {entry["name"]: entry for entry in SERVICE["spec"]["predictor"]["model"]["env"]}
    assert named == {"MODEL", "TRITON_ADMIN_KEY"}
    assert named <= set(given)
    assert given["TRITON_ADMIN_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "triton-admin"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["triton"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_container_is_as_closed_as_in_compose(name, compose):
    container = CONTAINERS[name][0]
    security = container["securityContext"]
    assert SECURE.items() <= security.items()
    whole = RUNTIME["spec"] if name == "kserve" else pod(BASE["Deployment"])
    assert USER.items() <= {**security, **whole.get("securityContext", {})}.items()
    assert compose["user"] == "1000:1000"
    assert compose["read_only"] is True
    assert compose["cap_drop"] == SECURE["capabilities"]["drop"]
    assert (
        compose["environment"].items()
        <= {entry["name"]: entry.get("value") for entry in container["env"]}.items()
    )
    writable = {
        mount["mountPath"] for mount in container["volumeMounts"] if "readOnly" not in mount
    }
    assert writable == {"/tmp", "/dev/shm"}  # noqa: S108


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_probe_is_the_health_check_of_compose(name, compose):
    container, _, http, _ = CONTAINERS[name]
    _, *check, model = compose["healthcheck"]["test"]
    check = [part for part in check if not part.startswith("--restart-after")]
    check[2] = f"--url=http://127.0.0.1:{http}"
    assert model.startswith("${MODEL")
    probes = [container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
    assert [probe["exec"]["command"] for probe in probes] == [
        ["sh", "-c", f'exec {" ".join(check)} "$MODEL"']
    ] * 3
    assert probes[0]["periodSeconds"] * probes[0]["failureThreshold"] >= 120
    assert probes[1]["failureThreshold"] == compose["healthcheck"]["retries"]


def test_a_rollout_never_takes_a_server_before_another_answers():
    spec = BASE["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert "replicas" not in spec, "that is the autoscaler's"
    wait = int(
        pod(BASE["Deployment"])["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1]
    )
    assert (
        wait + ServerFlags("", (), "").exit_timeout
        < pod(BASE["Deployment"])["terminationGracePeriodSeconds"]
    )


def test_every_selector_finds_the_pods():
    labels = BASE["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert BASE["Service"]["spec"]["selector"] == labels
    for kind, name in {
        "Deployment": "selector",
        "PodDisruptionBudget": "selector",
        "NetworkPolicy": "podSelector",
    }.items():
        assert BASE[kind]["spec"][name]["matchLabels"] == labels
    assert BASE["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "triton"
    named = {port["name"] for port in pod(BASE["Deployment"])["containers"][0]["ports"]}
    assert {port["targetPort"] for port in BASE["Service"]["spec"]["ports"]} <= named
    allowed = BASE["NetworkPolicy"]["spec"]["ingress"]
    assert {port["port"] for rule in allowed for port in rule["ports"]} == named
    assert BASE["NetworkPolicy"]["spec"]["egress"] == []


def test_the_rule_of_the_guide_gives_the_autoscaler_its_figure():
    guide = (ROOT / "docs" / "guide" / "operations.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    overlay, rules = (yaml.safe_load(block) for block in blocks)
    (metric,) = BASE["HorizontalPodAutoscaler"]["spec"]["metrics"]
    (rule,) = rules["rules"]
    assert rule["name"]["as"] == metric["pods"]["metric"]["name"]
    # Triton's own metrics, which tests/serving/embedded/test_metrics.py reads from a server.
    counters = set(re.findall(r"nv_\w+", rule["metricsQuery"]))
    assert counters == {"nv_inference_queue_duration_us", "nv_inference_request_success"}
    (patch,) = (yaml.safe_load(patch["patch"]) for patch in overlay["patches"])
    changed = patched(BASE["Deployment"], patch)
    assert pod(changed)["containers"][0]["env"][0] == {"name": "MODEL", "value": "shop"}
    (image,) = overlay["images"]
    assert pod(changed)["containers"][0]["image"].startswith(image["name"] + "@")
