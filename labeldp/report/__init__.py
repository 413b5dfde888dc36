"""HTML report on a release or a mechanism file, or on two of them."""
