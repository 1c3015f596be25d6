"""Inside the server: what Triton loads, and what tells whether it works."""
