"""Privacy units: bounding how many records of a unit are released, without shuffling a record."""
