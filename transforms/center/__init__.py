"""Beam transforms of the linear center: the feature sample, the noised sums, and the column of centers."""
