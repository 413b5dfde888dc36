"""Beam runners: their flags, the choice of a local one, protection of labels and keys, cancellation on a cluster."""
