"""Paths such as s3://bucket/key: read like local files, through a real server of S3."""

import pickle
import sys
import warnings
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import polars as pl
import pytest
from object_server import always, first_times
from polars.testing import assert_frame_equal

from workflow import Workflow, WorkflowError, inspect_dataset, ops
from workflow.data.bucket import Bucket
from workflow.data.object_stores import Objects
from workflow.data.sources import Source
from workflow.fit import learn_operators

pytestmark = pytest.mark.xdist_group("objects")


@pytest.fixture
def raw(tmp_path):
    """A folder with keys, hidden files, a file in a folder of its own, and an odd name."""
    for number, place in enumerate(
        ("day=2024-01-01/a.parquet", "day=2024-01-02/b c é.parquet", "day=2024-01-02/_b.parquet")
    ):
        path = tmp_path / "raw" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"user": [number, 7, None], "price": [1.5, number, 3]}).write_parquet(path)
    (tmp_path / "raw" / ".writer").mkdir()
    (tmp_path / "raw" / ".writer" / "d.parquet").write_bytes(b"not parquet")
    return tmp_path / "raw"


@pytest.fixture
def workflow():
    return Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize()))


def read(data, options=None):
    """The rows of data, and an error as a workflow raises it."""
    source = Source.of(data, storage_options=options)
    with source.errors("The data cannot be read"):
        return source.select().frame.collect()


@pytest.mark.parametrize(
    "place",
    ["", "/*", "/**/*.parquet", "/*/*.parquet", "/day=*-02", "/day=2024-01-01/*.parquet"],
)
def test_objects_are_found_and_read_like_files(link, raw, place):
    url = link.put_folder(raw, "raw")
    assert_frame_equal(read(url + place, link.options), read(f"{raw}{place}"))
    link.requests.clear()
    Source.of(url + place, storage_options=link.options)
    assert link.count("list-type") == (2 if place in ("/*", "/day=*-02") else 1)


def test_parquet_under_another_name_is_refused_in_a_store(link, raw):
    (raw / "empty").touch()
    (raw / "day=2024-01-01" / "000000_0").write_bytes(b"PAR1...")
    url = link.put_folder(raw, "hive")
    with pytest.raises(WorkflowError, match=r"000000_0, which is parquet under another name"):
        Source.of(url, storage_options=link.options)


@pytest.mark.parametrize("place", ["", "/*/*.parquet"])
def test_the_folder_of_a_table_with_a_log_is_refused_in_a_store(link, raw, place):
    (raw / "_delta_log").mkdir()
    (raw / "_delta_log" / "0.json").write_text("{}")
    url = link.put_folder(raw, "table")
    with pytest.raises(WorkflowError, match=f"Received: {url}, a Delta table, whose files"):
        Source.of(url + place, storage_options=link.options)


def test_a_folder_whose_name_is_also_a_pattern_is_read(link, raw):
    url = link.put_folder(raw, "clicks[1]")
    assert_frame_equal(read(url, link.options), read(raw.rename(raw.parent / "clicks[1]")))


@pytest.mark.parametrize("place", ["", "/*", "/a.parquet", "/**/*.parquet"])
def test_parquet_with_the_name_of_a_folder_is_refused_and_not_left_out(link, place):
    link.put("raw/a.parquet", pl.DataFrame({"user": [1]}))
    link.put("raw/a.parquet/b.parquet", pl.DataFrame({"user": [2]}))
    message = "Received: s3://.*/raw/a.parquet, which is an object, and a folder"
    with pytest.raises(WorkflowError, match=message):
        read(f"{link.url}/raw{place}", link.options)
    # Empty objects stand for a folder, whatever it is called.
    link.put("raw/a.parquet", b"")
    assert read(f"{link.url}/raw{place}", link.options)["user"].to_list() == [2]


def test_objects_in_a_list_are_listed_once_and_have_the_keys_of_their_folders(link, raw):
    url = link.put_folder(raw, "raw")
    names = ["day=2024-01-02/b c é.parquet", "day=2024-01-01/a.parquet"]
    found = read([f"{url}/{name}" for name in names], link.options)
    assert_frame_equal(found, read([raw / name for name in names]))
    assert link.count("list-type") == 2  # their two folders
    both = read([f"{url}/{names[0]}", str(raw / names[1])], link.options)
    assert both["user"].to_list() == found["user"].to_list()


def test_a_footer_is_one_request(link, raw):
    Source.of(link.put_folder(raw, "raw"), storage_options=link.options)
    assert link.count("a.parquet") == link.count("b%20c") == 1


@pytest.mark.parametrize("held", [128_000_000, 1_000])
def test_a_fit_reads_small_objects_once_for_all_operators(
    link, workflow, tmp_path, monkeypatch, held
):
    monkeypatch.setattr(learn_operators, "BYTES_OF_SMALL_OBJECTS", held)  # in one pass, in many
    for number in range(6):
        rows = pl.DataFrame({"user": [number, 7, None], "price": [1.5, number, float("nan")]})
        rows.write_parquet(tmp_path / f"{number}.parquet")
        link.put(f"raw/{number}.parquet", rows)
    link.requests.clear()
    workflow.fit(f"{link.url}/raw", storage_options=link.options)
    # The footers, the rows for the operators, and those for the number of NaN, which footers lack.
    assert link.count("GET") == 3 * 6 + 2
    # Polars 1 asks for the size before it reads rows.
    assert link.count("HEAD") == (2 * 6 if pl.__version__.startswith("1.") else 0)
    assert link.count("list-type") == 2  # at the beginning, and at the end for what has changed
    facts = workflow.training_data
    learnt = workflow.transform(tmp_path).collect()
    assert_frame_equal(learnt, workflow.fit(tmp_path).transform(tmp_path).collect())
    assert facts == workflow.training_data


@pytest.mark.parametrize("now", ["replaced", "removed"])
def test_of_many_objects_the_one_that_has_changed_is_named(link, raw, now):
    url = link.put_folder(raw, "raw")
    source = Source.of(url, storage_options=link.options)
    link.requests.clear()
    place = "day=2024-01-01/a.parquet"
    link.remove(f"raw/{place}")
    if now == "replaced":
        link.put(f"raw/{place}", pl.read_parquet(raw / place).reverse())
    reason = "another file" if now == "replaced" else "no such object"
    with pytest.raises(WorkflowError, match=f"{url}/{place} as it was .*{reason}"):
        source.files.expect_unchanged()
    assert len(link.requests) == 2  # a list, and the one that differs from it


def test_a_workflow_fits_and_transforms_objects_as_files(
    link, raw, workflow, tmp_path, monkeypatch
):
    url = link.put_folder(raw, "raw")
    workflow.fit(raw)
    expected = workflow.transform(raw).collect()
    for key, value in link.options.items():
        monkeypatch.setenv(key.upper() if key.startswith("aws") else f"AWS_{key.upper()}", value)
    workflow.fit(url)
    assert_frame_equal(workflow.transform(url).collect(), expected)
    workflow.transform_to_parquet(url, tmp_path / "made")
    assert_frame_equal(pl.read_parquet(tmp_path / "made" / "*.parquet"), expected)
    copy = link.put_folder(tmp_path / "made", "made")
    assert Source.of(copy).schema == workflow.output_schema


def test_a_published_data_set_is_exactly_its_files(link, raw, workflow, tmp_path):
    workflow.fit(raw).transform_to_parquet(raw, tmp_path / "made", rows_per_file=2)
    url = link.put_folder(tmp_path / "made", "made")
    link.put("made/extra.parquet", pl.DataFrame({"user": [1]}))
    with pytest.raises(WorkflowError, match=r"names and no others. Received: s3://.*extra.parquet"):
        read(url, link.options)
    link.remove("made/extra.parquet")
    link.remove("made/part-00001.parquet")
    with pytest.raises(WorkflowError, match=r"Expected s3://.*part-00001.parquet with .* no such"):
        read(url, link.options)


def test_a_workflow_on_a_cluster_gets_files_that_its_workers_can_open(link, raw):
    table = Source.of(link.put_folder(raw, "raw"), storage_options=link.options).files
    sent = pickle.loads(pickle.dumps(table.absolute()))  # noqa: S301 - as Dask sends it
    assert_frame_equal(sent.scan().collect(), read(raw))


@pytest.mark.parametrize("fault", ["fail", "cut"])
def test_a_request_that_fails_or_is_cut_is_sent_again(link, raw, workflow, fault):
    url = link.put_folder(raw, "raw")
    link.fault = first_times(fault)
    workflow.fit(url, storage_options=link.options)
    assert_frame_equal(
        workflow.transform(url, storage_options=link.options).collect(),
        workflow.fit(raw).transform(raw).collect(),
    )


def test_an_object_that_no_path_can_name_is_an_error_with_a_remedy(link, raw):
    url = link.put_folder(raw, "raw")
    server = link.options["aws_endpoint_url"].removeprefix("http://")
    with closing(HTTPConnection(server)) as connection:
        connection.request("PUT", f"{url.removeprefix('s3:/')}//a.parquet", b"")
        connection.getresponse().read()
    with pytest.raises(
        WorkflowError, match=r"raw cannot be read: .*between two slashes.*Rename it"
    ):
        read(url, link.options)


@pytest.mark.parametrize("place", ["", "/*"])
def test_a_list_that_is_cut_is_asked_for_again(link, raw, place):
    url = link.put_folder(raw, "raw")
    lists = []

    def first_two(text):
        lists.extend([text] if "list-type" in text else [])
        return "cut" if len(lists) < 3 else None

    link.fault = first_two
    assert_frame_equal(read(url + place, link.options), read(f"{raw}{place}"))
    link.fault = lambda text: "cut" if "list-type" in text else None
    link.requests.clear()
    with pytest.raises(WorkflowError, match=r"ended in the middle.*max_retries in storage_options"):
        read(url, {**link.options, "max_retries": 2})
    assert link.count("list-type") == 3


@pytest.mark.parametrize(
    ("fault", "reason"), [("fail", "no answer, or none without"), ("cut", "ended in the middle")]
)
def test_a_store_that_always_fails_is_an_error_with_a_remedy(link, raw, workflow, fault, reason):
    url = link.put_folder(raw, "raw")
    options = {**link.options, "max_retries": 1}
    source = Source.of(url, storage_options=options)
    link.fault = always(fault)
    with pytest.raises(WorkflowError, match=f"(?s){reason}.*max_retries in storage_options"):
        workflow.fit(url, storage_options=options)
    with (
        pytest.raises(WorkflowError, match=f"(?s){reason}.*max_retries in storage_options"),
        source.errors("The data cannot be read"),
    ):
        source.frame.collect()


@pytest.mark.parametrize("now", ["replaced", "removed"])
def test_an_object_that_changes_while_it_is_read_is_an_error(link, now):
    url = link.put("a.parquet", pl.DataFrame({"user": [1, 2]}))
    source = Source.of(url, storage_options=link.options)
    link.remove("a.parquet")
    if now == "replaced":  # by rows of the same size, at the same second
        link.put("a.parquet", pl.DataFrame({"user": [3, 4]}))
    reason = "another file" if now == "replaced" else "no such object"
    with (
        pytest.raises(WorkflowError, match=f"{url} as it was when the data was listed.*{reason}"),
        source.errors("The data cannot be read"),
    ):
        source.frame.collect()


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("/nothing/*.parquet", {}, "No parquet file matches 's3://.*/nothing/"),
        ("/nothing", {}, "No parquet file matches 's3://.*/nothing'"),
        ("s3://unknown/raw", {}, "no such bucket. Compare its name"),
        ("hdfs://host/raw", {}, "Expected a local path, or one of s3://BUCKET/KEY, gs://"),
        ("s3a://shop/raw", {}, "Received: 's3a://shop/raw'. Write s3://shop/raw."),
        ("azure://shop/raw", {}, "Received: 'azure://shop/raw'. Write az://shop/raw."),
        ("file:///tmp/raw", {}, "Received: 'file:///tmp/raw'. Write /tmp/raw."),
        ("s3://", {}, "Received: 's3://'"),
        (Path("s3://ratings/raw"), {}, "as text, such as 's3://bucket/key'. .*pathlib removes"),
        ("", {"allow_http": None}, "without TLS. If it is meant, add allow_http"),
        ("", {"nonsense": "1"}, "unknown key in storage_options.*'nonsense'"),
        ("", {"timeout": "soon"}, 'a value of storage_options .* "soon"'),
        ("", {"aws_secret_access_key": None}, "half of the credentials.*SecretAccessKey"),
        ("", {"aws_access_key_id": None}, "half of the credentials.*AccessKeyId"),
        ("", {"aws_endpoint_url": "http://127.0.0.1:9", "max_retries": 0}, "no answer"),
        (
            "",
            {
                "aws_access_key_id": None,
                "aws_secret_access_key": None,
                "aws_metadata_endpoint": "http://127.0.0.1:9",
                "max_retries": 0,
            },
            "no credentials. Set them in the environment, as AWS_ACCESS_KEY_ID",
        ),
    ],
)
def test_an_error_says_how_to_connect(link, path, change, message):
    given = path if isinstance(path, Path) or "://" in path else link.url + path
    options = {k: v for k, v in (link.options | change).items() if v is not None}
    with pytest.raises(WorkflowError, match=f"(?s){message}"):
        read(given, options)


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:9", "http:/127.0.0.1:9", "http:// a", "s3://a", ""]
)
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("s3://ratings/raw", "aws_endpoint_url"),
        ("s3://ratings/raw", "AWS_ENDPOINT"),
        ("s3://ratings/raw", "endpoint"),
        ("gs://ratings/raw", "google_base_url"),
        ("az://ratings/raw", "azure_storage_endpoint"),
        ("abfss://ratings/raw", "azure_endpoint"),
    ],
)
def test_an_endpoint_that_is_no_url_is_named(url, key, endpoint):
    with pytest.raises(
        WorkflowError, match=f"^{url} cannot .* expected {key} .*Received: '{endpoint}'"
    ):
        read(url, {key: endpoint})


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", ""])
@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://ratings/raw", "AWS_ENDPOINT_URL"),
        ("s3://ratings/raw", "AWS_ENDPOINT_URL_S3"),
        ("s3://ratings/raw", "AWS_ENDPOINT"),
        ("gs://ratings/raw", "GOOGLE_BASE_URL"),
        ("az://ratings/raw", "AZURE_STORAGE_ENDPOINT"),
        ("abfss://ratings/raw", "AZURE_ENDPOINT"),
    ],
)
def test_a_variable_with_an_endpoint_that_is_no_url_is_named(url, variable, endpoint, monkeypatch):
    monkeypatch.setenv(variable, endpoint)
    with pytest.raises(WorkflowError, match=f"expected {variable} .*Received: '{endpoint}'"):
        read(url)


def test_an_option_counts_before_the_endpoint_of_the_environment(link, raw, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9")
    assert_frame_equal(read(link.put_folder(raw, "raw"), link.options), read(raw))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1:9")  # it counts before the option
    with pytest.raises(WorkflowError, match="expected AWS_ENDPOINT_URL_S3 "):
        read(link.url, link.options)


@pytest.mark.parametrize("content", [b"", b"user,price\n" * 9, b"PAR1" * 9])
def test_an_object_that_is_not_parquet_is_named(link, tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(WorkflowError) as expected:
        read(tmp_path / "a.parquet")
    url = link.put("a.parquet", content)
    with pytest.raises(WorkflowError) as error:
        read(url, link.options)
    assert str(error.value) == str(expected.value).replace(str(tmp_path), link.url)


def test_storage_options_are_for_objects_and_stay_secret():
    with pytest.raises(
        WorkflowError, match=r"paths such as s3://bucket/key only. Received: aws_reg"
    ):
        read({"user": [1]}, {"aws_region": "eu-west-1"})
    with pytest.raises(WorkflowError, match="storage_options as a dict") as error:
        read("s3://ratings/raw", "secret")
    assert "secret" not in str(error.value)


def test_without_obstore_files_are_read_and_objects_are_an_error(raw, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert read(raw).height == 6
    with pytest.raises(WorkflowError, match=r'obstore.*pip install "parquet-to-triton\[objects\]'):
        read("s3://ratings/raw")


@pytest.mark.parametrize("root", ["s3://b", "gs://b", "az://b", "abfs://b", "abfss://b"])
def test_each_scheme_has_a_store(root):
    account = {"azure_storage_account_name": "account"} if root.startswith("a") else {}
    assert "b" in repr(Bucket(root, account).store)


def test_what_has_to_be_renamed_is_not_written_to_a_store(raw, workflow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workflow.fit(raw)
    for write in (
        lambda: workflow.transform_to_parquet(raw, Path("s3://ratings/made")),
        lambda: workflow.fit_transform_to_parquet(raw, Path("s3://ratings/made")),
        lambda: workflow.save("gs://ratings/workflow"),
    ):
        with pytest.raises(
            WorkflowError, match=r"a path of this machine. .* local folder, and copy"
        ):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
    for folder in ("s3://ratings/workflow", Path("s3://ratings/workflow")):
        with pytest.raises(WorkflowError, match=r"'s3://ratings/workflow'.* read it, copy it here"):
            Workflow.load(folder)


def test_a_query_on_a_gpu_reads_files_only(link, raw, monkeypatch):
    monkeypatch.setattr("workflow.data.sources.is_gpu", lambda engine: engine == "gpu")
    with pytest.raises(
        WorkflowError, match=r'Expected local files for engine="gpu". Received: s3:'
    ):
        Source.of(link.put_folder(raw, "raw"), "gpu", link.options)


def test_results_in_a_store_are_those_on_a_disk(link, raw, workflow, tmp_path):
    url, made = link.put_folder(raw, "raw"), f"{link.url}/made"
    options = {"rows_per_file": 2, "shuffle": True, "seed": 3}
    want = workflow.fit(raw).transform_to_parquet(raw, tmp_path / "made", **options)
    # Other tools take a key as it is written.
    odd = f"{link.url}/.//made/"
    files = workflow.transform_to_parquet(url, odd, storage_options=link.options, **options)
    assert files == [f"{made}/{path.name}" for path in want]
    assert_frame_equal(read(made, link.options), read(tmp_path / "made"))
    assert Source.of(made, storage_options=link.options).schema == workflow.output_schema
    # Also of local data, with options that are for the result alone.
    workflow.fit_transform_to_parquet(raw, f"{made}2", storage_options=link.options)
    assert_frame_equal(read(f"{made}2", link.options), workflow.transform(raw).collect())


def test_results_that_are_not_complete_are_refused_by_readers(link, raw, workflow, monkeypatch):
    made, put, states = f"{link.url}/made", Bucket.put, []
    workflow.fit(raw)

    def observed(bucket, key, content, **options):
        put(bucket, key, content, **options)
        try:
            states.append(len(read(made, link.options)))
        except WorkflowError as error:
            states.append("still" if "a transform is still writing" in str(error) else str(error))

    monkeypatch.setattr(Bucket, "put", observed)
    workflow.transform_to_parquet(raw, made, rows_per_file=2, storage_options=link.options)
    # The mark, then three files, then `_schema.json`.
    assert states == ["still"] * 4 + [6]


def test_a_run_that_fails_leaves_nothing_in_the_store(link, raw, workflow, monkeypatch):
    made, put = f"{link.url}/made", Bucket.put
    workflow.fit(raw)

    def failing(bucket, key, content, **options):
        if "00001" in key:
            raise WorkflowError("the store is full")
        put(bucket, key, content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put", failing)
        with pytest.raises(WorkflowError, match="the store is full"):
            workflow.transform_to_parquet(raw, made, rows_per_file=2, storage_options=link.options)
    with pytest.raises(WorkflowError, match="No parquet file matches"):
        read(made, link.options)
    assert len(workflow.transform_to_parquet(raw, made, storage_options=link.options)) == 1


def first(method, part, fault="fail"):
    """A `fault` for the first of such requests, which the server has done nevertheless."""
    seen = []

    def of(text):
        if not seen and text.startswith(method) and part in text:
            seen.append(text)
            return fault
        return None

    return of


def test_a_run_that_began_before_another_one_ended_does_not_replace_its_files(link, raw, workflow):
    """The other one ends between this one's look at the folder and its mark."""
    made, rows = f"{link.url}/made", pl.DataFrame({"user": [1]})
    began = []

    def ended(text):
        if not began and text.startswith("PUT"):
            began.append(text)
            link.put("made/part-00000.parquet", rows)

    workflow.fit(raw)
    link.fault = ended
    with pytest.raises(WorkflowError, match="made holds parquet files already"):
        workflow.transform_to_parquet(raw, made, storage_options=link.options)
    assert began[0].endswith("/made/.writing/lock")
    assert not link.exists("made/.writing/lock")
    assert_frame_equal(read(made, link.options), rows)


def test_results_are_not_written_into_a_folder_of_the_data(link, raw, workflow):
    url = link.put_folder(raw, "raw")
    workflow.fit(raw)
    for data in (url, f"{url}/", [str(raw), url]):
        for write in (workflow.transform_to_parquet, workflow.fit_transform_to_parquet):
            with pytest.raises(WorkflowError, match=f"outside of the data, .*Received: {url}/made"):
                write(data, f"{url}/made", storage_options=link.options)
    root, _, key = url.removeprefix("s3://").partition("/")
    for data, folder in (
        (url, f"s3://{root}//{key}/made"),
        (url, f"{url}/./made"),
        (f"s3://{root}//{key}", f"{url}/made"),
    ):
        with pytest.raises(WorkflowError, match="outside of the data"):
            workflow.transform_to_parquet(data, folder, storage_options=link.options)
    for data, folder in ((url, f"{url}-made"), (f"{url}/*/*.parquet", f"{url}/made")):
        workflow.transform_to_parquet(data, folder, storage_options=link.options)


@pytest.mark.parametrize("name", ["made", "made.parquet"])
def test_results_are_not_written_below_the_name_of_an_object(link, raw, workflow, name):
    url = link.put(name, pl.DataFrame({"user": [1]}))
    with pytest.raises(WorkflowError, match=f"Expected a folder. Received: {url}, which is an"):
        workflow.fit(raw).transform_to_parquet(raw, url, storage_options=link.options)


def test_the_files_of_a_run_that_has_not_ended_are_not_called_superfluous(link, raw, workflow):
    """To remove them alone would break the run, or leave the mark of one that was killed."""
    made = f"{link.url}/made"
    link.put("made/.writing/lock", b"")
    link.put("made/part-00000.parquet", pl.DataFrame({"user": [1]}))
    # Not the folder, which may hold files of others beside.
    remedy = f"Wait for it.*If it was killed, .* its parquet .*: aws s3 rm {made}/.writing/lock\\.$"
    with pytest.raises(WorkflowError, match=remedy):
        workflow.fit(raw).transform_to_parquet(raw, made, storage_options=link.options)
    with pytest.raises(WorkflowError, match=remedy):
        read(made, link.options)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_mark_that_the_store_has_written_before_it_failed_is_ones_own(
    link, raw, workflow, retries
):
    made, options = f"{link.url}/made", {**link.options, "max_retries": retries}
    link.fault = first("PUT", "/lock")
    workflow.fit(raw).transform_to_parquet(raw, made, storage_options=options)
    assert_frame_equal(read(made, link.options), workflow.transform(raw).collect())
    assert not link.exists("made/.writing/lock")


def test_a_mark_that_was_removed_by_an_answer_that_is_cut_is_asked_for_again(link, raw, workflow):
    """A warning said that the mark stays, which was gone."""
    made = f"{link.url}/made"
    workflow.fit(raw)
    link.fault = first("POST", "?delete", "cut")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        workflow.transform_to_parquet(raw, made, storage_options=link.options)
    assert link.count("?delete") == 2
    assert not link.exists("made/.writing/lock")
    assert_frame_equal(read(made, link.options), workflow.transform(raw).collect())


@pytest.mark.parametrize("part", ["?uploads", "?uploadId"])
def test_a_large_object_is_written_again_after_an_answer_that_is_cut(link, tmp_path, part):
    """The first answer begins its parts, and the last one ends them: then the object is there."""
    file = tmp_path / "large"
    file.write_bytes(bytes(range(250)) * 44_000)
    place = Objects(link.options).path(f"{link.url}/large")
    link.fault = first("POST", part, "cut")
    place.bucket.put(place.key, file)
    assert place.bucket.get(place.key, None) == file.read_bytes()


def test_what_cannot_be_removed_after_an_error_does_not_hide_it(link, raw, workflow):
    made, options = f"{link.url}/made", {**link.options, "max_retries": 0}
    workflow.fit(raw)
    link.fault = lambda text: "fail" if "?delete" in text or "00001" in text else None
    with pytest.raises(WorkflowError, match=r"part-00001.parquet cannot be written: no answer"):
        workflow.transform_to_parquet(raw, made, rows_per_file=2, storage_options=options)
    link.fault = lambda _: None
    assert link.exists("made/.writing/lock")
    with pytest.raises(WorkflowError, match="a transform is still writing"):
        read(made, link.options)


def test_a_mark_that_may_not_be_removed_is_a_warning(link, raw, workflow):
    """Keys that may write and not remove: the data set is complete."""
    made, options = f"{link.url}/made", {**link.options, "max_retries": 0}
    workflow.fit(raw)
    link.fault = lambda text: "fail" if "?delete" in text else None
    with pytest.warns(UserWarning, match="complete.*made/.writing/lock cannot be removed"):
        workflow.transform_to_parquet(raw, made, storage_options=options)
    assert_frame_equal(read(made, link.options), workflow.transform(raw).collect())


def test_a_folder_of_a_store_that_is_in_use_is_refused(link, raw, workflow):
    workflow.fit(raw)
    link.put("be gun/.writing/lock", b"")
    with pytest.raises(
        WorkflowError, match=r"s3://.*, where one has begun and not ended.*aws s3 rm"
    ) as error:
        workflow.transform_to_parquet(raw, f"{link.url}/be gun", storage_options=link.options)
    assert str(error.value).endswith(f"aws s3 rm '{link.url}/be gun/.writing/lock'.")
    link.put("full/a.parquet", pl.DataFrame({"user": [1]}))
    with pytest.raises(WorkflowError, match="holds parquet files already"):
        workflow.transform_to_parquet(raw, f"{link.url}/full", storage_options=link.options)
    with pytest.raises(WorkflowError, match=r"all workers share.*Received: s3://.*aws s3 sync"):
        workflow.transform_to_parquet(
            raw, f"{link.url}/a", storage_options=link.options, client=object()
        )
    with pytest.raises(WorkflowError, match=r"nowhere.* cannot be .*no such bucket"):
        workflow.transform_to_parquet(raw, "s3://nowhere/a", storage_options=link.options)


def test_workers_of_a_cluster_read_objects(link, raw, workflow, client, tmp_path):
    url = link.put_folder(raw, "raw")
    want = workflow.fit(raw).transform(raw).collect()
    workflow.fit(url, client=client, storage_options=link.options)
    files = workflow.transform_to_parquet(
        url, tmp_path / "made", client=client, storage_options=link.options
    )
    assert_frame_equal(pl.read_parquet(files), want)


@pytest.mark.parametrize("retries", ["2", 2])
def test_options_are_given_as_text_as_numbers_and_as_booleans(link, raw, retries):
    url = link.put_folder(raw, "raw")
    options = link.options | {"allow_http": True, "max_retries": retries}
    assert_frame_equal(read(url, options), read(raw))
    assert Workflow(["user"] >> ops.Categorify()).fit(url, storage_options=options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"max_retries": "two"}, "Expected max_retries .* Received: 'two'"),
        ({"max_retries": -1}, "Expected max_retries .* Received: -1"),
        ({"max_retries": True}, "Expected max_retries .* Received: True"),
        ({"timeout": 30}, "Expected 'timeout' .* Received: int"),
        ({"aws_session_token": b"secret"}, "Expected 'aws_session_token' .* Received: bytes"),
        ({"aws_region": None}, "Expected 'aws_region' .* Received: NoneType"),
    ],
)
def test_options_of_other_types_are_refused_by_name(option, message):
    url, workflow = "s3://ratings/raw", Workflow(["user"] >> ops.Categorify())
    workflow.fit({"user": [1]})
    for call in (
        lambda: workflow.fit(url, storage_options=option),
        lambda: workflow.transform(url, storage_options=option),
        lambda: workflow.transform_to_parquet({"user": [1]}, url, storage_options=option),
        lambda: inspect_dataset(url, storage_options=option),
    ):
        with pytest.raises(WorkflowError, match=message) as error:
            call()
        assert "secret" not in str(error.value)


def test_tables_of_operators_are_read_with_options_of_their_own(link, tmp_path):
    """The data are local, and the environment has no credentials; what is saved has none either."""
    movies = {"movie": [1, 2], "year": [1999, 2001], "vector": [[1.0], [2.0]], "tag": ["a", "b"]}
    pl.DataFrame(movies).write_parquet(tmp_path / "movies.parquet")
    url = link.put_folder(tmp_path, "tables") + "/movies.parquet"
    options = {"storage_options": link.options}
    topics = pl.DataFrame({"movie": [1, 2], "tag": ["a", "b"]})
    topics.write_parquet(tmp_path / "topics.parquet")
    topics_url = link.put_folder(tmp_path, "topics") + "/topics.parquet"
    made = Workflow(
        (["movie"] >> ops.JoinExternal(url, on="movie", columns_ext=["year"], **options))
        + (
            ["movie"]
            >> ops.PretrainedVectors(url, ids="movie", vector="vector", **options)
            >> ops.Rename(postfix="_vector")
        )
        + ([["movie", "other"]] >> ops.ColumnSimilarity(topics_url, **options))
    ).fit({"movie": [1], "other": [2]})
    made.save(tmp_path / "saved")
    for one in (made, Workflow.load(tmp_path / "saved")):
        rows = one.transform({"movie": [2, 1, 9], "other": [2, 2, 2]}).collect()
        assert rows["year"].to_list() == [2001, 1999, None]
        assert rows["movie_vector"].to_list() == [[2.0], [1.0], [0.0]]
        (similarity,) = set(rows.columns) - {"movie", "year", "movie_vector"}
        assert rows[similarity].to_list()[:2] == pytest.approx([1.0, 0.0])
    files = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert files
    assert not any(b"aws_secret" in path.read_bytes() for path in files)


@pytest.mark.parametrize("shuffle", [False, True])
def test_data_that_cannot_be_compared_at_the_end_leaves_no_files(link, tmp_path, shuffle):
    """That it has not changed meanwhile, by a second list of it."""
    rows = pl.DataFrame({"user": range(100)})
    for number in range(3):
        link.put(f"many/{number}.parquet", rows)
    lists = iter([None])
    link.fault = lambda text: next(lists, "fail") if "list-type" in text else None
    options = {**link.options, "max_retries": 0}
    with pytest.raises(WorkflowError, match="/many cannot be read"):
        Workflow(["user"]).transform_to_parquet(
            f"{link.url}/many", tmp_path / "out", shuffle=shuffle, storage_options=options
        )
    assert link.count("list-type") == 2
    assert not (tmp_path / "out").exists()
