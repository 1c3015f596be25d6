"""A bucket of S3, Google Cloud Storage or Azure, through the library obstore."""

from __future__ import annotations

import errno
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from os import environ
from pathlib import Path
from typing import Any, TypeVar

from workflow.errors import WorkflowError
from workflow.first_use import install_command

# Six retries wait for some 6 s in all.
_RETRIES = 6
_PREFIX = re.compile(r"^(aws|google|azure)_")
# The options that are about the connection, which obstore takes apart from those about the store.
_CLIENT = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers"),
    *("http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url"),
    *("proxy_ca_certificate", "proxy_excludes", "randomize_addresses", "read_timeout"),
    *("root_certificate", "timeout", "user_agent"),
)
# The options and variables that are endpoints; the library panics at one that is no URL.
_ENDPOINT = re.compile(
    "(aws_)?endpoint(_url)?|(google_)?base_url|azure_(storage_)?endpoint", re.IGNORECASE
)
_OF_AZURE = "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"
_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    **dict.fromkeys(("az", "abfs", "abfss"), _OF_AZURE),
}
_WEB = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)
# What says nothing to a user in an error of the libraries. A store's own code may be on its second line.
_NOISE = re.compile(r"<\?xml[^>]*\?>|\n\s*\n.*", re.DOTALL)
_NO_BUCKET = "no such bucket. Compare its name, and the endpoint and region of storage_options"
# Reasons in a store's errors, and their remedies.
_REMEDIES = {
    r"computeMetadata|metadata\.google": (
        "no credentials. Set GOOGLE_APPLICATION_CREDENTIALS in the environment, or "
        "google_service_account in storage_options, to the path of a key file"
    ),
    "metadata/identity": (
        "no credentials. Set them in the environment, as AZURE_STORAGE_ACCOUNT_KEY or "
        "AZURE_STORAGE_SAS_TOKEN, or in storage_options"
    ),
    "Account must be specified": (
        "no account. Set AZURE_STORAGE_ACCOUNT_NAME in the environment, or azure_storage_account_name "
        "in storage_options; a connection string is not read"
    ),
    r"169\.254\.169\.254|/latest/api/token": (
        "no credentials. Set them in the environment, as AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or in storage_options"
    ),
    "NoSuchBucket|ContainerNotFound": _NO_BUCKET,
    "builder error": ("an endpoint without TLS. If it is meant, add allow_http to storage_options"),
    "AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|code: 40[13]": (
        "access denied. Compare the credentials, in the environment or storage_options, and what "
        "they allow"
    ),
    "after [0-9]+ retries|error sending request|code: 5": (
        "no answer, or none without an error, after several tries. Compare the endpoint and the "
        "network, or try more often with max_retries in storage_options"
    ),
    "body error": (
        "an answer that ended in the middle, again and again. Compare the network, or try more "
        "often with max_retries in storage_options"
    ),
    "Missing (SecretAccessKey|AccessKeyId)": (
        "half of the credentials. Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
        "environment, or both in storage_options"
    ),
    "failed to parse": (
        "a value of storage_options or of the environment that is of another kind than its key takes"
    ),
    "invalid path": (
        "an object whose name has an empty part, as between two slashes, or one of dots alone. Rename "
        "it, or read a folder without it"
    ),
    "Configuration key": "an unknown key in storage_options. They are those of Polars",
}

T = TypeVar("T")
# The size of an object in bytes, and its ETag, which differs for other content.
State = tuple[int, str | None]


class Bucket:
    """A bucket or container, and the options to connect to it.

    Args:
        root: its URL, such as "s3://ratings".
        options: storage options as of Polars; those not given are those of the environment.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self.root = root
        self._options = dict(options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.root, self._options)  # connections stay in their process

    @property
    def polars(self) -> dict[str, Any]:
        """Further arguments of `polars.scan_parquet`."""
        # obstore has no credentials from elsewhere either.
        options = {"max_retries": _RETRIES} | self._options
        return {"storage_options": options, "credential_provider": None}

    @cached_property
    def store(self) -> Any:
        """The store of obstore, made at the first use.

        Raises:
            ValueError: an endpoint is no URL.
        """
        self._expect_endpoints()
        options = dict(self._options)
        retries = options.pop("max_retries", _RETRIES)
        names = {key: _PREFIX.sub("", key.lower()) for key in options}
        client = {name: options[key] for key, name in names.items() if name in _CLIENT}
        return _library().store.from_url(
            self.root,
            config={key: value for key, value in options.items() if names[key] not in client},
            client_options=client or None,  # an empty one would replace the environment's
            retry_config={"max_retries": retries},
        )

    def _expect_endpoints(self) -> None:
        endpoints = {key: value for key, value in self._options.items() if _ENDPOINT.fullmatch(key)}
        for name in _VARIABLES.get(self.root.partition(":")[0], ()):
            # Options take precedence over variables, except the variable of a single service.
            if name in environ and (not endpoints or name.endswith("_S3")):
                endpoints[name] = environ[name]
        for name, value in endpoints.items():
            if not _WEB.fullmatch(value):
                raise ValueError(
                    f"expected {name} as a URL, such as http://localhost:9000. "
                    f"Received: {value!r:.200}"
                )

    def list(self, folder: str, *, deep: bool) -> tuple[dict[str, State], Sequence[str]]:
        """The objects in a folder by key, and the folders in it if it is not listed with their content.

        Args:
            folder: its key; "" for all.
            deep: whether to list the objects in its folders as well.

        Raises:
            WorkflowError: the bucket cannot be listed.
        """
        where = f"{self.root}/{folder}"
        try:
            with _store_errors(where):
                objects, folders = self._complete(lambda: self._list(folder or None, deep=deep))
        except OSError as error:
            raise WorkflowError(f"{where} cannot be read: {_NO_BUCKET}.") from error
        return {meta["path"]: _state(meta) for meta in objects}, folders

    def _list(self, folder: str | None, *, deep: bool) -> tuple[Any, Sequence[str]]:
        if deep:
            return _library().list(self.store, folder).collect(), ()
        listing = _library().list_with_delimiter(self.store, folder)
        return listing["objects"], listing["common_prefixes"]

    def _complete(self, ask: Callable[[], T]) -> T:
        """The result of a request, sent again if the answer ends in the middle.

        The library does so for the content of objects alone. Where the answer was that to the end of
        an object in parts, it removes these then, and its error is that there are none.
        """
        retries = self._options.get("max_retries", _RETRIES)
        while True:
            try:
                return ask()
            except (_library().exceptions.BaseError, FileNotFoundError) as error:
                if not retries or not re.search("body error|NoSuchUpload", str(error)):
                    raise
            retries -= 1

    def state(self, key: str) -> State:
        """Size and ETag of an object; raises as `get` does."""
        with _store_errors(f"{self.root}/{key}"):
            return _state(_library().head(self.store, key))

    def get(self, key: str, tag: str | None, **options: Any) -> bytes:
        """The bytes of an object.

        Args:
            key: its key.
            tag: the ETag that it must have.
            options: the range, as obstore takes it.

        Raises:
            OSError: there is no such object, or one with another ETag.
            WorkflowError: the store cannot be reached, or refuses the request.
        """
        if tag is not None:
            options["if_match"] = tag
        with _store_errors(f"{self.root}/{key}"):
            return bytes(_library().get(self.store, key, options=options).bytes())

    @contextmanager
    def reserved(
        self, mark: str, taken: Callable[[], Exception], note: str = ""
    ) -> Iterator[Callable[[str, Path], None]]:
        """Write objects while another one, the mark, excludes others; after an error none is left.

        Args:
            mark: key of the mark, which is removed at the end.
            taken: makes the error if there is the mark already.
            note: text that the mark holds behind a word of its own, for `note_of`.

        Yields:
            A function that writes an object from its key and a local file.

        Raises:
            WorkflowError: the store cannot be reached, or refuses the request.
        """
        self._reserve(mark, taken, note)
        keys = [mark]

        def put(key: str, file: Path) -> None:
            keys.append(key)
            self.put(key, file)

        try:
            yield put
        except BaseException:
            # The last ones first, so that objects that cannot be removed keep their mark.
            with suppress(WorkflowError):
                self.remove(keys[::-1])
            raise
        try:
            self.remove([mark])
        except WorkflowError as error:
            # Of keys that may write and not remove, for one.
            warnings.warn(
                f"What was written is complete, but its mark stays: {error}", stacklevel=4
            )

    def note_of(self, mark: str) -> str | None:
        """The note in a mark; None if there is no such mark.

        Raises:
            WorkflowError: the store cannot be reached, or refuses the request.
        """
        try:
            return self.get(mark, None).decode(errors="replace").partition(" ")[2]
        except FileNotFoundError:
            return None

    def _reserve(self, mark: str, taken: Callable[[], Exception], note: str) -> None:
        content = f"{secrets.token_hex(16)} {note}".encode()
        try:
            self.put(mark, content, new=True)
        except (FileExistsError, WorkflowError) as error:
            # The store may have written it and answered with an error, so that it was asked again.
            if self._holds(mark, content):
                return
            if isinstance(error, FileExistsError):
                raise taken() from None
            raise

    def _holds(self, key: str, content: bytes) -> bool:
        with suppress(OSError, WorkflowError):
            return self.get(key, None) == content
        return False

    def put(self, key: str, content: bytes | Path, *, new: bool = False) -> None:
        """Write an object, in parts if it is large.

        Args:
            key: its key.
            content: its bytes, or a local file.
            new: refuse to replace an object.

        Raises:
            FileExistsError: there is such an object.
            WorkflowError: the store cannot be reached, or refuses the request.
        """
        with _store_errors(f"{self.root}/{key}", "written"):
            mode = "create" if new else "overwrite"
            self._complete(lambda: _library().put(self.store, key, content, mode=mode))

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects one after another, those that exist.

        Raises:
            WorkflowError: the store cannot be reached, or refuses a request.
        """
        for key in keys:
            # S3 does not say that there was none; other stores do.
            with _store_errors(f"{self.root}/{key}", "removed"), suppress(FileNotFoundError):
                self._complete(partial(_library().delete, self.store, key))


def _state(meta: Any) -> State:
    # Azure's lists have it without the quotes that every other answer and a condition have.
    tag = meta["e_tag"]
    return meta["size"], tag if tag is None or tag.endswith('"') else f'"{tag}"'


@contextmanager
def _store_errors(where: str, action: str = "read") -> Iterator[None]:
    """Turn the errors of obstore into ours.

    Args:
        where: the URL.
        action: what was to be done with the object.

    Raises:
        OSError: the object is missing, or is not the listed one.
        WorkflowError: another reason.
    """
    errors = _library().exceptions
    try:
        yield
    except errors.AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "an object of this name") from None
    except FileNotFoundError as error:
        if action != "read":  # an object is written anywhere, but in a bucket
            raise WorkflowError(f"{where} cannot be {action}: {store_reason(error)}.") from error
        raise FileNotFoundError(errno.ENOENT, "no such object") from None
    except errors.PreconditionError:
        raise OSError(errno.ESTALE, "another object of this name, written since") from None
    except (errors.BaseError, ValueError, TypeError) as error:
        if isinstance(error, WorkflowError):
            raise
        raise WorkflowError(f"{where} cannot be {action}: {store_reason(error)}.") from error


def store_reason(error: BaseException) -> str:
    """A reason and a remedy, and what the store said."""
    text = str(error)
    remedy = next((advice for part, advice in _REMEDIES.items() if re.search(part, text)), None)
    message = " ".join(_NOISE.sub("", text).split()).rstrip(".")
    return message if remedy is None else f"{remedy} ({message:.500})"


def _library() -> Any:
    """The library obstore, which only paths with a scheme need."""
    try:
        import obstore.exceptions  # noqa: PLC0415 - it is optional
        import obstore.store  # noqa: PLC0415
    except ModuleNotFoundError:
        raise WorkflowError(
            "Expected the package obstore, to read paths such as s3://BUCKET/KEY. Received: no such "
            f"package. Install the extra: {install_command('objects')}."
        ) from None
    return obstore
