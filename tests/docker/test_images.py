"""Deployment files name each image by its digest: a tag can be moved to another image."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DIGEST = re.compile(r"@(sha256:[0-9a-f]{64}|\$\{TRITON_DIGEST\})$")


def images(text):
    """The images that a Dockerfile starts from, or that a YAML file runs without building them."""
    if text.startswith("FROM ") or "\nFROM " in text:
        return re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    return [image for document in yaml.safe_load_all(text) for image in run(document)]


def run(value):
    if isinstance(value, list):
        return [image for item in value for image in run(item)]
    if not isinstance(value, dict):
        return []
    own = [value["image"]] if isinstance(value.get("image"), str) and "build" not in value else []
    return own + [image for item in value.values() for image in run(item)]


def files():
    folder = ROOT / "docker"
    return [ROOT / "docker-compose.yml", folder / "Dockerfile", *sorted(folder.rglob("*.yaml"))]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_image_is_named_by_its_digest(path):
    assert [image for image in images(path.read_text()) if not DIGEST.search(image)] == []


@pytest.mark.parametrize(
    "text",
    [
        "FROM nvcr.io/nvidia/tritonserver:26.09-py3",
        "ARG TAG=26.09\nFROM nvcr.io/nvidia/tritonserver:${TAG}",
        "services: {triton: {image: 'triton:26.09'}}",
        "spec: {containers: [{name: triton, image: triton}]}",
        "spec: {containers: [{image: 'triton@sha256:0123'}]}",
    ],
)
def test_a_tag_is_found(text):
    assert [image for image in images(text) if not DIGEST.search(image)]


def test_compose_builds_from_the_digest_that_it_is_given():
    text = (ROOT / "docker-compose.yml").read_text()
    build = yaml.safe_load(text)["services"]["triton"]["build"]
    assert build["args"]["TRITON_DIGEST"].startswith("${TRITON_DIGEST:?")
