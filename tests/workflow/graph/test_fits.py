"""Equal fits have equal digests, and others have others, whatever the engine, the run or the outputs."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, ops

USERS = ["c", "a", "b", "a", None, "a", "b"]
AGES = [31.5, 20.0, None, 44.25, 18.0, 60.0, 25.0]
LABELS = [1, 0, 1, 1, 0, 0, 1]
PROGRAM = f"""
from workflow import Workflow, ops
fitted = Workflow(["user"] >> ops.Categorify()).fit({{"user": {USERS!r}}})
print(fitted.output_schema["user"].properties["fit_digest"])
"""


def make():
    ids = ["user"] >> ops.Categorify()
    numbers = ["age"] >> ops.FillMissing(0.0) >> ops.Normalize()
    return Workflow(ids + numbers + "label")


def digests(workflow):
    return {
        column.name: column.properties.get("fit_digest")
        for column in workflow.output_schema.columns
    }


def fitted(users=USERS, ages=AGES):
    return make().fit({"user": users, "age": ages, "label": LABELS})


def test_the_order_of_rows_files_and_outputs_does_not_count(tmp_path):
    found = digests(fitted())
    assert digests(fitted(USERS[::-1], AGES[::-1])) == found
    frame = pl.DataFrame({"user": USERS, "age": AGES, "label": LABELS})
    for number, part in enumerate((frame[:3], frame[3:])):
        part.write_parquet(tmp_path / f"{number}.parquet")
    assert digests(make().fit(tmp_path)) == found
    assert digests(fitted().remove_inputs(["label"])) == {k: found[k] for k in ("user", "age")}
    assert digests(fitted().remove_inputs(["age"]))["user"] == found["user"]
    assert found["label"] is None


def test_another_vocabulary_of_equal_size_and_other_moments_are_other_fits():
    found = digests(fitted())
    renamed = digests(fitted(users=["c", "a", "x", "a", None, "a", "x"]))
    assert renamed["user"] != found["user"]
    assert renamed["age"] == found["age"]
    # The same values, in another order of frequency.
    assert digests(fitted(users=["c", "b", "a", "b", None, "b", "a"]))["user"] != found["user"]
    assert digests(fitted(ages=[31.6, *AGES[1:]]))["age"] != found["age"]


def test_a_saved_workflow_and_another_process_have_the_same(tmp_path):
    workflow = fitted()
    workflow.save(tmp_path / "saved")
    assert digests(Workflow.load(tmp_path / "saved")) == digests(workflow)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    alone = Workflow(["user"] >> ops.Categorify()).fit({"user": USERS})
    assert run.stdout.strip() == digests(alone)["user"]


def test_a_second_workflow_includes_the_first(tmp_path):
    """A column that passes through keeps its digest, and what is computed from it has another one."""

    def twice(users):
        workflow = fitted(users)
        workflow.transform_to_parquet(
            {"user": USERS, "age": AGES, "label": LABELS}, tmp_path / users[0]
        )
        kept = ["user"] >> ops.Rename(postfix="_kept")
        clipped = ["user"] >> ops.LambdaOp(lambda ids: ids.clip(0, 2)) >> ops.Rename(postfix="_few")
        return digests(workflow), digests(Workflow(kept + clipped).fit(tmp_path / users[0]))

    first, second = twice(USERS)
    others = ["x", *USERS[1:]]
    other_first, other_second = twice(others)
    assert second["user_kept"] == first["user"]
    assert other_second["user_kept"] == other_first["user"]
    assert other_second["user_few"] != second["user_few"] != second["user_kept"]


ROWS_CHANGED = {
    "Filter": lambda columns: columns >> ops.Filter(lambda rows: rows["label"] >= 0),
    "Dropna": lambda columns: columns >> ops.Dropna("label"),
    "Groupby": lambda columns: (
        columns >> ops.Groupby("label", aggs={"user": ["list", "last"], "age": ["list", "mean"]})
    ),
    "twice": lambda columns: (
        ROWS_CHANGED["Groupby"](ROWS_CHANGED["Filter"](columns))
        >> ops.Rename(f=lambda name: name.removesuffix("_list"))
    ),
    "DifferenceLag": lambda columns: (
        columns[["user", "age"]] >> ops.DifferenceLag(columns["label"])
    ),
}


@pytest.mark.parametrize("change", ROWS_CHANGED.values(), ids=ROWS_CHANGED)
def test_a_column_keeps_its_digest_where_the_rows_change(change):
    """Sessions and filtered rows hold the ids and numbers of the fit, too."""

    def of(users=USERS, ages=AGES):
        ids = ["user"] >> ops.Categorify()
        columns = ids + (["age"] >> ops.FillMissing(0.0) >> ops.Normalize()) + ["label"]
        fitted = Workflow(change(columns)).fit({"user": users, "age": ages, "label": LABELS})
        return digests(fitted)

    found, whole = of(), digests(fitted())
    assert of(USERS[::-1], AGES[::-1]) == found
    others, older = of(users=["x", *USERS[1:]]), of(ages=[31.6, *AGES[1:]])
    for name in found:
        if name == "label":
            assert found[name] is None
            continue
        of_user, of_age = others[name] != found[name], older[name] != found[name]
        assert (of_user, of_age) == (name.startswith("user"), name.startswith("age")), name
        if name in whole:
            assert found[name] == whole[name]


def test_ids_of_two_hashes_are_two_fits():
    """TensorFlow's hash and ours give the values other ids of the same number of buckets."""
    hashed = ["user"] >> ops.HashBucket(8), ["user"] >> ops.HashBucket(8, hash="farmhash")
    ours, theirs = (Workflow(node).fit({"user": USERS}) for node in hashed)
    assert digests(ours) != digests(theirs)


@pytest.mark.parametrize("scale", [1 + 1e-12, 1 - 1e-12])
def test_sums_in_another_order_are_the_same_fit(scale):
    assert digests(fitted(ages=[a and a * scale for a in AGES])) == digests(fitted())


def test_a_centred_column_is_the_same_fit_in_any_order():
    """Its mean is rounding alone, and another one in another order of the rows."""
    ages = np.random.default_rng(0).normal(0, 3, 1000)
    ages -= ages.mean()
    means = {ages.mean(), ages[::-1].mean(), np.sort(ages).mean()}
    assert len(means) > 1
    node = Workflow(["age"] >> ops.Normalize())
    found = [digests(node.fit({"age": each})) for each in (ages, ages[::-1], np.sort(ages))]
    assert found[0] == found[1] == found[2]
    assert digests(node.fit({"age": ages + 0.001})) != found[0]


def test_both_zeros_are_the_same_fit():
    """The least of 0.0 and -0.0 is the one that comes first."""
    node = Workflow(["age"] >> ops.NormalizeMinMax())
    found = [digests(node.fit({"age": [zero, 1.0]})) for zero in (0.0, -0.0)]
    assert found[0] == found[1]
