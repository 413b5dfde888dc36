"""Audit of mechanism files and releases: a second implementation that shares no code with the solvers."""
