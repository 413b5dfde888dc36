"""Reading of input files and writing of shards, on any filesystem that Beam knows."""
