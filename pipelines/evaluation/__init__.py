"""Models trained on privatized labels: `evaluate`."""
