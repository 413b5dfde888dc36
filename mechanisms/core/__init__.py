"""Priors, losses, budgets, randomizers and their exact certificates."""
