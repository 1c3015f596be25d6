"""Commands of the object stores' own tools, which errors and reports advise."""

from __future__ import annotations

from shlex import quote

_COPY = {"s3": "aws s3 sync", "gs": "gcloud storage rsync --recursive"}
_REMOVE = {"s3": "aws s3 rm", "gs": "gcloud storage rm"}
# Of Azure, whose tool takes the address of the account.
_OTHER_COPY, _OTHER_REMOVE = "azcopy sync", "azcopy remove"


def copy_command(url: str, folder: str) -> str:
    """The command that copies a folder of a store to one of this machine.

    Example:
        >>> copy_command("s3://shop/models 7", "models")
        "aws s3 sync 's3://shop/models 7' models"
        >>> copy_command("az://shop/models", "models")
        'azcopy sync https://ACCOUNT.blob.core.windows.net/shop/models models'
    """
    command, place = _command(url, _COPY, _OTHER_COPY)
    return f"{command} {place} {quote(folder)}"


def remove_command(url: str, *, recursive: bool = True) -> str:
    """The command that removes a folder of a store, or else one object.

    Example:
        >>> remove_command("gs://shop/train")
        'gcloud storage rm --recursive gs://shop/train'
    """
    command, place = _command(url, _REMOVE, _OTHER_REMOVE)
    return f"{command}{' --recursive' * recursive} {place}"


def server_path(url: str) -> str:
    """A folder of a store as Triton's `--model-repository` takes it, which has a scheme of its own for Azure.

    Example:
        >>> server_path("az://shop/models"), server_path("gs://shop/models")
        ('as://ACCOUNT/shop/models', 'gs://shop/models')
    """
    return url if url.partition("://")[0] in _COPY else "as://{}/{}".format(*_of_azure(url))


def _command(url: str, commands: dict[str, str], other: str) -> tuple[str, str]:
    """A command, and the place of a URL as it takes it."""
    scheme = url.partition("://")[0]
    if scheme in commands:
        return commands[scheme], quote(url)
    account, place = _of_azure(url)
    return other, quote(f"https://{account}.blob.core.windows.net/{place}")


def _of_azure(url: str) -> tuple[str, str]:
    """The account, as far as a URL says it, and the container with the key."""
    bucket, slash, key = url.partition("://")[2].partition("/")
    container, at, host = bucket.partition("@")
    return host.partition(".")[0] if at else "ACCOUNT", f"{container}{slash}{key}"
