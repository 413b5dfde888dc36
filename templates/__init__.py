"""Job templates: Beam YAML, Dataflow, Flink and Kubernetes."""
