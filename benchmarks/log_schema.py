"""Schema of the synthetic logs. Apart from `synthetic`, so that programs that only run jobs load no library."""

ID = "id"
LABEL, LABEL_MAX = "label", 400
FLOATS = 8
FORMATS = ("tfrecord", "parquet")
ORDERS = ("mixed", "fixed")
EPSILON = 1.0

COLUMNS = ("synthetic", "conversions", "clicks")
USER = "user"
PREDICTION = "prediction"
CONVERSION_LABEL = "SalesAmountInEuro"
