"""What the made-up logs look like. Apart from `synthetic`, so that who only runs them loads no library."""

ID = "id"
LABEL, LABEL_MAX = "label", 400
FLOATS = 8
FORMATS = ("tfrecord", "parquet")
ORDERS = ("mixed", "fixed")
EPSILON = 1.0
