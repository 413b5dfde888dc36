"""Studies that release nothing: evaluation of models that are trained on privatized labels."""
