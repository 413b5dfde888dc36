"""`labeldp attack`: black-box checks of a mechanism file or of a sampler that claims to implement it."""
