"""Looks at an input before a job reads it: columns that flags name, `--dry_run`, and `labeldp init`. Reads no label."""
