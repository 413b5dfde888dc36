"""Audit of the records of a release. Loaded by `--data` only, because it needs numpy and pyarrow."""
