"""`labeldp attack`: black-box checks of a mechanism or a sampler, and guesses of labels from features and a release."""
