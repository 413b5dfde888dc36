"""TFRecord files and tf.Example messages: container, wire format, encoder and decoder."""
