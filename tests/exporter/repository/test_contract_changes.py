"""The report names the columns that clients have to change; no proof of a new version can show them."""

import keras
import polars as pl
import pytest
from small_export import configs

from exporter import ServingOptions
from training import models
from workflow import Workflow, get_embedding_sizes, ops


def fitted(frame, **numbers):
    hour = ["at"] >> ops.DatePart(["hour"]) >> ops.Categorify()
    others = ["shop"] >> ops.Categorify()
    filled = list(numbers) >> ops.FillMissing(0) >> ops.LambdaOp(lambda c: c.cast("float32"))
    return Workflow(hour + others + filled).fit(frame.with_columns(**numbers))


def network(workflow, numbers, output="output"):
    keras.utils.set_random_seed(0)
    sizes = get_embedding_sizes(workflow, rule=lambda _: 2)
    return models.mlp(sizes, numbers, hidden=(2,), output_name=output)


@pytest.fixture
def orders():
    times = pl.Series([f"2025-01-01 {hour}:00:00" for hour in ("03", "09", "09")]).str.to_datetime()
    return pl.DataFrame({"at": times, "shop": ["a", "b", "a"]})


@pytest.mark.parametrize("runtime", ["fused_onnx", "onnx"])
def test_times_that_get_a_zone_are_told_though_their_tensor_stays(export, orders, runtime):
    """One night's files have times in UTC: a client goes on to send the hours of its clock."""
    serving = ServingOptions(runtime=runtime)

    def night(frame):
        workflow = fitted(frame, price=pl.lit(2.0))
        return export(network(workflow, ["price"]), workflow, labels=None, serving=serving)

    first, again = night(orders), night(orders.head(2))
    assert first.changes == again.changes == ()
    zoned = night(orders.with_columns(pl.col("at").dt.replace_time_zone("UTC")))
    assert zoned.changes == ("input at: datetime[us, UTC], was datetime[us]",)
    assert zoned.changes[0] in str(zoned).replace("\n", " ").replace("  ", " ")
    before, now = (
        {tensor.name: tensor.data_type for tensor in configs(report)["movies"].input}
        for report in (again, zoned)
    )
    assert before == now


def test_columns_that_come_go_or_change_their_type_are_told(export, orders):
    serving = ServingOptions(runtime="fused_onnx")
    first = fitted(orders, price=pl.lit(2.0), clicks=pl.lit(1))
    export(network(first, ["price", "clicks"]), first, labels=None, serving=serving)
    numbered = orders.with_columns(shop=pl.Series([1, 2, 1]))
    second = fitted(numbered, price=pl.lit(2, pl.Int32), weight=pl.lit(0.5))
    changed = export(
        network(second, ["price", "weight"], "score"), second, labels=None, serving=serving
    )
    assert sorted(changed.changes) == [
        "input clicks: gone",
        "input price: int32, was float64",
        "input shop: int64, was string",
        "input weight: new",
        "output output: gone",
        "output score: new",
    ]


def test_a_column_that_takes_no_null_any_more_is_told(export, orders):
    """Its nulls were filled, and the next workflow passes them on to a network, which takes none."""
    serving = ServingOptions(runtime="fused_onnx")
    first = fitted(orders, price=pl.lit(2.0))
    export(network(first, ["price"]), first, labels=None, serving=serving)
    shop = ["shop"] >> ops.Categorify()
    price = ["price"] >> ops.LambdaOp(lambda column: column.cast("float32"))
    hour = ["at"] >> ops.DatePart(["hour"]) >> ops.Categorify()
    second = Workflow(hour + shop + price).fit(orders.with_columns(price=pl.lit(2.0)))
    changed = export(network(second, ["price"]), second, labels=None, serving=serving)
    assert changed.changes == ("input price: takes no null any more",)
    once = network(first, ["price"])
    (score,) = once.outputs
    twice = keras.Model(once.input, {"output": keras.ops.concatenate([score, score], axis=1)})
    again = export(twice, first, labels=None, serving=serving)
    assert again.changes == ("output output: 2 values a row, was 1 value",)


def test_lists_that_become_tensors_of_another_form_are_told(export, orders):
    """Clients in other languages send a batching server `tags` and not `tags__values`."""
    rows = orders.with_columns(tags=pl.Series([[1, 2], [3], [1]]))

    def night(**options):
        workflow = Workflow(["tags"] >> ops.Categorify()).fit(rows)
        sizes = get_embedding_sizes(workflow, rule=lambda _: 2)
        serving = ServingOptions(runtime="tensorflow", **options)
        model = models.mlp(sizes, [], hidden=(2,))
        return export(model, workflow, labels=None, serving=serving).changes

    assert night() == night() == ()
    assert night(max_batch_size=64) == ("input tags: padded lists, was flat lists",)
    assert night(max_batch_size=32) == ()
