"""Composition of one randomizer over the records of a privacy unit: its epsilon and delta, in exact arithmetic."""
