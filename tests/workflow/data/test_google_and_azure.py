"""gs://, az:// and abfss:// through servers that answer as Google's and Azure's do, where S3 differs."""

import numpy as np
import polars as pl
import pytest
from memory_stores import BUCKET, memory_store
from polars.testing import assert_frame_equal

from loader import KerasSequenceLoader
from workflow import Workflow, WorkflowError, ops
from workflow.data.bucket import Bucket
from workflow.data.sources import Source

ROOTS = (f"gs://{BUCKET}", f"az://{BUCKET}", f"abfss://{BUCKET}@account.dfs.core.windows.net")


@pytest.fixture(params=ROOTS)
def root(request):
    return request.param


@pytest.fixture
def store(root):
    with memory_store(root.partition(":")[0]) as store:
        yield store


@pytest.fixture
def raw(tmp_path, store):
    """A folder, and its copy in the store."""
    (tmp_path / "raw").mkdir()
    for number in range(2):
        path = tmp_path / "raw" / f"{number} é.parquet"
        pl.DataFrame({"user": [number, 7, None], "price": [1.5, number, 3]}).write_parquet(path)
        store.objects[f"raw/{path.name}"] = path.read_bytes()
    return tmp_path / "raw"


@pytest.fixture
def workflow():
    return Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize()))


@pytest.mark.parametrize("place", ["", "/*", "/0 é.parquet"])
def test_objects_are_read_like_files(root, store, raw, workflow, place):
    workflow.fit(f"{root}/raw{place}", storage_options=store.options)
    # At the beginning and at the end, where a single object is asked for instead.
    assert len(store.lists) == {"": 2, "/*": 2}.get(place, 1)
    found = workflow.transform(f"{root}/raw{place}", storage_options=store.options).collect()
    assert_frame_equal(found, workflow.fit(f"{raw}{place}").transform(f"{raw}{place}").collect())


@pytest.mark.usefixtures("raw")
@pytest.mark.parametrize("now", ["replaced", "removed"])
def test_an_object_that_changes_while_it_is_read_is_an_error(root, store, now):
    url, key = f"{root}/raw/0 é.parquet", "raw/0 é.parquet"
    source = Source.of(url, storage_options=store.options)
    other = store.objects["raw/1 é.parquet"]
    store.objects.pop(key) if now == "removed" else store.objects.update({key: other})
    reason = "another file" if now == "replaced" else "no such object"
    with (
        pytest.raises(WorkflowError, match=f"{url} as it was when the data was listed.*{reason}"),
        source.errors("The data cannot be read"),
    ):
        source.frame.collect()


def test_results_in_a_store_are_those_on_a_disk(root, store, raw, workflow, tmp_path):
    files = workflow.fit(raw).transform_to_parquet(raw, tmp_path / "made", rows_per_file=2)
    made = workflow.transform_to_parquet(
        raw, f"{root}/made", rows_per_file=2, storage_options=store.options
    )
    assert made == [f"{root}/made/{path.name}" for path in files]
    written = {key for key in store.objects if key.startswith("made/")}
    assert written == {
        f"made/{path.name}" for path in (tmp_path / "made").iterdir() if path.is_file()
    }
    settings = {"batch_size": 2, "cat_names": ["user"], "seed": 3}
    local = KerasSequenceLoader(tmp_path / "made", **settings)
    remote = KerasSequenceLoader(f"{root}/made", storage_options=store.options, **settings)
    for mine, other in zip(remote, local, strict=True):
        assert np.array_equal(mine["user"], other["user"])


def test_a_run_that_fails_leaves_nothing_in_the_store(root, store, raw, workflow, monkeypatch):
    """The file that could not be written is not there to be removed, which S3 alone does not mind."""
    put = Bucket.put

    def failing(bucket, key, content, **options):
        if "00001" in key:
            raise WorkflowError("the store is full")
        put(bucket, key, content, **options)

    monkeypatch.setattr(Bucket, "put", failing)
    with pytest.raises(WorkflowError, match="the store is full"):
        workflow.fit(raw).transform_to_parquet(
            raw, f"{root}/made", rows_per_file=2, storage_options=store.options
        )
    assert not [key for key in store.objects if key.startswith("made/")]


def test_a_folder_in_which_a_run_has_begun_is_refused(root, store, raw, workflow):
    store.objects["made/.writing/lock"] = b"another"
    with pytest.raises(WorkflowError, match="where one has begun and not ended"):
        workflow.fit(raw).transform_to_parquet(raw, f"{root}/made", storage_options=store.options)
    with pytest.raises(FileExistsError):
        Bucket(root, store.options).put("made/.writing/lock", b"mine", new=True)


def test_a_bucket_that_does_not_exist_is_named(root, store):
    url = f"{root.replace(BUCKET, 'nowhere', 1)}/raw"
    with pytest.raises(WorkflowError, match=r"no such bucket.*<Code>(NoSuchB|ContainerNotF)"):
        Workflow(["user"]).fit(url, storage_options=store.options)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("gs://shop/raw", {}, "no credentials. Set GOOGLE_APPLICATION_CREDENTIALS"),
        (
            "az://shop/raw",
            {
                "azure_storage_account_name": "account",
                "azure_msi_endpoint": "http://127.0.0.1:9/metadata/identity/oauth2/token",
            },
            "no credentials. Set them in the environment, as AZURE_STORAGE_ACCOUNT_KEY",
        ),
        ("az://shop/raw", {}, "no account. Set AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_what_is_missing_is_named_by_the_words_of_the_store(url, options, message, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:9")
    with pytest.raises(WorkflowError, match=message):
        Workflow(["user"]).fit(
            url, storage_options={"allow_http": True, "max_retries": 0, **options}
        )
