"""Flags of the commands. No module here loads a library besides the standard one, so that help appears at once."""
