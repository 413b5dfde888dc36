"""Commands that need a prior but no data: `solve`, `compare` and `plan`."""
