"""Transforming: a fitted program over data of any size, in memory and to parquet."""
