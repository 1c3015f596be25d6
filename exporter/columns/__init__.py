"""The columns that a network takes: their dtypes, nulls and widths, checked before a plan is made."""
