"""Budget that the runs of a ledger have spent: sums over releases, adjacencies and windows of time, and their caps."""
