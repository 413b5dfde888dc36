"""Release of labels as pure functions of arrays: counts, digest, noisy prior, randomizer, draws. Stages call them."""
