"""A stand-in for the GPU's memory where there is no GPU: the same calls, on Polars' frames.

What a GPU makes of them is for `tests/gpu`.
"""

from __future__ import annotations

import polars as pl

from workflow.expressions.polars.series import list_elements, relisted


class GpuOnTheHost:
    """A place for the results of queries, which a function runs."""

    def __init__(self, collect=pl.LazyFrame.collect):
        self.hold = lambda query: RowsOnTheHost(collect(query))
        self.send = RowsOnTheHost

    def prepare(self, query, schema):
        assert schema
        return PreparedOnTheHost(lambda rows: self.hold(query(rows.lazy())))

    def together(self, parts):
        columns = (rows.frame.to_series().alias(name) for name, rows in parts.items())
        return RowsOnTheHost(pl.DataFrame(columns))


class PreparedOnTheHost:
    """A query over rows that each run is given."""

    def __init__(self, run):
        self.run = run


class RowsOnTheHost:
    """Rows of a query."""

    def __init__(self, frame):
        self.frame, self.height, self.schema = frame, frame.height, frame.schema

    def lazy(self):
        return self.frame.lazy()

    def to_host(self):
        return self.frame

    def columns(self):
        return {column.name: RowsOnTheHost(column.to_frame()) for column in self.frame}

    def elements(self, name):
        return RowsOnTheHost(list_elements(self.frame.to_series()).alias(name).to_frame())

    def in_lists(self, lists):
        of = lists.frame.to_series()
        return RowsOnTheHost(pl.DataFrame([relisted(column, of) for column in self.frame]))

    def repeated(self, lists):
        count = lists.frame.to_series().list.len()
        repeated = self.frame.select(pl.all().repeat_by(pl.lit(count)))
        return RowsOnTheHost(pl.DataFrame([list_elements(c).alias(c.name) for c in repeated]))

    def with_empty_lists(self):
        return RowsOnTheHost(self.frame.with_columns(pl.all().fill_null([])))

    def write_parquet(self, paths, rows_per_file, compression, row_group_rows):
        for number, path in enumerate(paths):
            rows = self.frame.slice(number * rows_per_file, rows_per_file)
            rows.write_parquet(path, compression=compression, row_group_size=row_group_rows)
