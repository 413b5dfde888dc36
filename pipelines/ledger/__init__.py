"""Ledger: the budget that was spent, in a file, a database or on an object store; caps, windows and composition."""
