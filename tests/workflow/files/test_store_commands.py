"""Advice names the tool of the store that a path is in."""

from __future__ import annotations

import shlex

import pytest

from workflow.files.store_commands import copy_command, remove_command, server_path

AZURE = "https://ACCOUNT.blob.core.windows.net"


@pytest.mark.parametrize(
    ("url", "copy", "remove"),
    [
        ("s3://b/a dir", ["aws", "s3", "sync"], ["aws", "s3", "rm"]),
        (
            "gs://b/a dir",
            ["gcloud", "storage", "rsync", "--recursive"],
            ["gcloud", "storage", "rm"],
        ),
    ],
)
def test_stores_whose_tools_take_the_path(url, copy, remove):
    assert shlex.split(copy_command(url, "my models")) == [*copy, url, "my models"]
    assert shlex.split(remove_command(url)) == [*remove, "--recursive", url]
    assert shlex.split(remove_command(url, recursive=False)) == [*remove, url]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("az://b/a/dir", f"{AZURE}/b/a/dir"),
        ("abfs://b", f"{AZURE}/b"),
        (
            "abfss://b@shop.dfs.core.windows.net/a dir",
            "https://shop.blob.core.windows.net/b/a dir",
        ),
    ],
)
def test_azures_tool_takes_the_address_of_the_account(url, address):
    assert shlex.split(copy_command(url, "models")) == ["azcopy", "sync", address, "models"]
    assert shlex.split(remove_command(url)) == ["azcopy", "remove", "--recursive", address]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3://b/a dir", "s3://b/a dir"),
        ("gs://b/models", "gs://b/models"),
        ("az://b/models", "as://ACCOUNT/b/models"),
        ("abfss://b@shop.dfs.core.windows.net/models", "as://shop/b/models"),
    ],
)
def test_a_server_has_a_scheme_of_its_own_for_azure(url, path):
    assert server_path(url) == path
