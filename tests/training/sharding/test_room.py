"""The memory that workers have for tables."""

import pytest

from loader.opening import open_loader
from training.sharding.room import free_memory


@pytest.mark.parametrize(
    ("limit", "used"),
    [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")],
    ids=["cgroups 2", "cgroups 1"],
)
def test_a_containers_limit_counts_less_what_it_holds(tmp_path, monkeypatch, limit, used):
    """Files in memory that others may drive out are not held."""
    without = free_memory()
    monkeypatch.setattr(open_loader, "MEMORY_LIMITS", [tmp_path / limit])
    (tmp_path / limit).write_text("8000000\n")
    (tmp_path / used).write_text("5000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1200000\nactive_file 300000\n")
    assert free_memory() == 4_500_000
    (tmp_path / used).write_text("9600000\n")
    assert free_memory() == 0
    (tmp_path / limit).write_text("max\n")
    assert free_memory() > 8_000_000
    assert without > 8_000_000
