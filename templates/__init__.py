"""Job templates: Beam YAML, Dataflow, Flink, Spark and Kubernetes."""
