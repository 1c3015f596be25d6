"""Facts about the columns that a network takes, their ids and fits, for networks of any library."""
