"""The HTML report on a release: `report`."""
