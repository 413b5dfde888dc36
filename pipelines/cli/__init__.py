"""Command line: dispatch, arguments, exit codes, signals and progress."""
