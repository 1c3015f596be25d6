"""A real Triton server on loopback: its program, its flags, its processes and its models."""
