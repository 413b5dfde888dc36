"""Writing of shards and dead letters, with the same bytes however the runner forms its bundles."""
