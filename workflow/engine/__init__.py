"""The engines that run queries: Polars on the CPU, cuDF on a GPU."""
