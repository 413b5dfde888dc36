"""Reading of input files, on any filesystem that Beam knows."""
