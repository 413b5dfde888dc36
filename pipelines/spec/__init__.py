"""Request of a release: input, label, budget, unit and output, checked before anything is read or charged."""
