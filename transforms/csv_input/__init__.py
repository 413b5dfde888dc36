"""Reading of CSV files in blocks of whole rows."""
