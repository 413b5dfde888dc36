"""The main job: `privatize`, `fit` and `apply`."""
