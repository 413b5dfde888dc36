"""`labeldp attack`: guesses of labels from features and a release."""
