"""Readers of files into record batches: Parquet, CSV and TFRecords behind one PTransform."""
