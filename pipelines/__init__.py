"""Whole releases: what a release is, how one happens, and its faces. A folder imports only folders below it."""
