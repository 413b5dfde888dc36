"""TFRecord files and tf.Example messages."""
