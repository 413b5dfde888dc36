"""Beam runners: their flags, the choice of a local one, running without leaks, cancelling on a cluster."""
