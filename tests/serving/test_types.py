"""Types of the client, as a checker sees them."""

import pytest
from strict_types import assert_typed

SCRIPT = """
from typing import assert_type
import pandas as pd
import polars as pl
from serving import AsyncEnsembleClient, EnsembleClient
from workflow.schema.column import Array

def ask(client: EnsembleClient, frame: pl.DataFrame, table: pd.DataFrame) -> None:
    assert_type(client.predict(frame), pl.DataFrame)
    assert_type(client.predict(table, timeout=1), pd.DataFrame)
    assert_type(client.predict({"userId": [7]}), dict[str, Array])
    client.predict([1, 2])  # type: ignore[call-overload]

async def ask_later(client: AsyncEnsembleClient, frame: pl.DataFrame, table: pd.DataFrame) -> None:
    assert_type(await client.predict(frame), pl.DataFrame)
    assert_type(await client.predict(table), pd.DataFrame)
    assert_type(await client.predict({"userId": [7]}), dict[str, Array])
"""


@pytest.mark.long
def test_a_table_gives_a_table_of_its_kind(tmp_path):
    assert_typed(tmp_path, SCRIPT)
