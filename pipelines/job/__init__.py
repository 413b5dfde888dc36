"""Main job of labeldp: the commands `privatize`, `fit` and `apply`."""
