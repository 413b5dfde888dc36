"""Label differential privacy for regression labels, as one Apache Beam job."""
