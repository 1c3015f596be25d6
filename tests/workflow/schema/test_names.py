"""An error about an unknown column names the one that was meant, wherever columns are named."""

import polars as pl
import pytest

from workflow import ColumnSchema, Schema, Workflow, WorkflowError, ops
from workflow.schema.names import did_you_mean

DATA = {"userId": [7, 7, 9], "rating": [1.0, 5.0, 3.0]}


def fitted():
    return Workflow((["userId"] >> ops.Categorify()) + "rating").fit(DATA)


def join():
    movies = pl.DataFrame({"userId": [7], "genre": ["a"]})
    node = ["userId"] >> ops.JoinExternal(movies, on="userId", columns_ext=["userId", "genres"])
    return Workflow(node).fit(DATA)


@pytest.mark.parametrize(
    ("use", "meant"),
    [
        (lambda: Workflow(["userID"] >> ops.Categorify()).fit(DATA), "userId"),
        (lambda: fitted().remove_inputs(["ratings"]), "rating"),
        (lambda: fitted().reverse_mapping("user_id"), "userId"),
        (lambda: fitted().output_schema["raiting"], "rating"),
        (lambda: Schema([ColumnSchema("age", "int32")])["agee"], "age"),
        (join, "genre"),
        (
            lambda: Workflow(["userId"] >> ops.Categorify(freq_threshold={"userid": 2})).fit(DATA),
            "userId",
        ),
        (
            lambda: Workflow(
                ["userId"] >> ops.LambdaOp(lambda c, df: c + df["ratin"], dependency="rating")
            ).fit(DATA),
            "rating",
        ),
    ],
    ids=range(8),
)
def test_the_column_that_was_meant_is_named(use, meant):
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'"):
        use()


def test_a_column_with_a_similar_name_is_to_be_renamed():
    workflow = Workflow(["userId", "rating"] >> ops.Categorify()).fit(DATA)
    data = pl.DataFrame({"user_id": [7], "Rating": [4.0]})
    with pytest.raises(
        WorkflowError, match=r"If 'user_id' is 'userId' and 'Rating' is 'rating', rename them\.$"
    ):
        workflow.transform(data)
    # A transform without a label is possible, without any column it is not.
    with pytest.raises(WorkflowError, match=r"remove_inputs\(\['rating'\]\)"):
        workflow.transform(data.rename({"user_id": "userId"}).drop("Rating"))


def test_a_name_that_resembles_none_is_not_guessed():
    assert did_you_mean(["x", 3, None], ["userId", "rating"]) == ""
    assert did_you_mean([], ["userId"]) == ""
    assert did_you_mean(["ratign", "USERID"], ["userId", "rating"]) == (
        " Did you mean 'rating' and 'userId'?"
    )
    many = [f"column {n}" for n in range(10_000)]
    assert "column 17" in did_you_mean(["columm 17"], many)


WIDE = [f"column_number_{n}" for n in range(1_000)]
WIDE_DATA = {name: [1] for name in WIDE}


def wide():
    return Workflow(WIDE >> ops.Categorify()).fit(WIDE_DATA)


@pytest.mark.parametrize(
    "use",
    [
        lambda: wide().output_schema["x"],
        lambda: wide().remove_inputs(["x"]),
        lambda: wide().reverse_mapping("x"),
        lambda: wide().transform({name: [1] for name in WIDE[:3]}),
        lambda: Workflow(WIDE >> ops.Rename(name="x")).fit(WIDE_DATA),
        lambda: Workflow(WIDE >> ops.Categorify(freq_threshold={"x": 1})).fit(WIDE_DATA),
    ],
    ids=range(6),
)
def test_a_message_about_many_columns_is_short(use):
    with pytest.raises(ValueError, match=r"\(\d+ in all\)") as caught:
        use()
    assert len(str(caught.value)) < 2_500
