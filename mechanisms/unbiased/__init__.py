"""Optimal randomizers with no bias or a limited one."""
