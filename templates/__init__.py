"""Reusable job templates: Beam YAML, Dataflow and Flink."""
