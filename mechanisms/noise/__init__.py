"""Keyed randomness: record identities, random words, discrete Laplace noise and the input digest."""
