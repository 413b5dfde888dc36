"""Privacy units of a job: their flags, and the choice of the number of records of each that are released."""
