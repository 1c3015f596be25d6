"""The peers: NVTabular and Merlin in an environment of their own, and the script that one would write."""
