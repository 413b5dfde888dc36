"""Evaluation of models trained on privatized labels: the command `evaluate`."""
