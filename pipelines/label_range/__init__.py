"""`labeldp domain`: proposes a label domain from a histogram with noise, which is charged like any release."""
