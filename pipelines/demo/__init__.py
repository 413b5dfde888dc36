"""Demo on a generated conversion log: the command `demo`."""
