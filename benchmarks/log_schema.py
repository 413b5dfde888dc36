"""Schema of the synthetic logs. Apart from `synthetic`, so that programs that only run jobs load no library."""

ID = "id"
LABEL, LABEL_MAX = "label", 400
FLOATS = 8
FORMATS = ("tfrecord", "parquet")
ORDERS = ("mixed", "fixed")
EPSILON = 1.0

COLUMNS = ("synthetic", "conversions", "clicks", "wide", "sequence")
USER = "user"
PREDICTION = "prediction"
CONVERSION_LABEL = "SalesAmountInEuro"
WIDE_INTEGERS, WIDE_TEXTS, SEQUENCE = 13, 26, 200
# Columns of a wide Parquet log, with id and label: a third are floats, a third integers, a third texts.
WIDE_PARQUET = 300
