"""Mechanisms of randomized response."""
