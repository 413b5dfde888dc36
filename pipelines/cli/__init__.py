"""Command line: one module for each command, dispatch, exit codes, and what commands print."""
