"""Mechanisms that add noise to the label."""
