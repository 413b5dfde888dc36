"""Statistics and schemas of examples, by TensorFlow Data Validation."""
