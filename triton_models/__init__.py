"""Code inside the server: what Triton loads, and a check that it works."""
