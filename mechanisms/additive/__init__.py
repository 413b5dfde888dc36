"""Mechanisms that add noise to the label, on a finite output grid."""
