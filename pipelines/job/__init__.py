"""Beam graphs of a release, the passes before and after it, and the runners that they run on."""
