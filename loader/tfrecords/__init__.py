"""TFRecord files as parquet."""
