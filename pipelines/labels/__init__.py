"""Jobs for several labels of a record: their flags, the split of the budget between them, and their manifest."""
