"""Analysis of randomizers: loss, variance, model error, planning of budgets, and attacks."""
