"""Commands on a prior, without data: `solve`, `compare` and `plan`."""
