"""HTML report on a release or a mechanism file: the command `report`."""
