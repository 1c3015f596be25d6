"""The network to export, and its inputs."""
