"""Reports, differences and budgets as text."""
