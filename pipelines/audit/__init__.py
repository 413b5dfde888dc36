"""The auditor: a second implementation that shares no code with the solvers."""
