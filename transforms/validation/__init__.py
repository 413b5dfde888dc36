"""Validation of examples: statistics and schemas by TensorFlow Data Validation."""
