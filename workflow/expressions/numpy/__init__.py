"""The numpy interpreter, which runs inside Triton's Python backend."""
