"""The example with most of the operators, run as a newcomer would."""

import pytest


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_orders_of_every_kind_are_served_as_they_were_trained(run_example):
    printed = run_example("shop")
    assert "Parity passed: shop, 2,000 rows" in printed
