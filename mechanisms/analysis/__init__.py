"""Analysis of randomizers: loss, variance, model error and planning of budgets."""
