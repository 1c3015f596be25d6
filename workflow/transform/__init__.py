"""Transformation of data of any size by a fitted program, in memory and to parquet."""
