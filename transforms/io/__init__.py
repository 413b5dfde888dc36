"""Reading of input files and writing of shards."""
