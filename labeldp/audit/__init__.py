"""Audit of mechanism files and releases: a second implementation of what privacy rests on, and a replay of centers."""
