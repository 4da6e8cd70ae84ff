"""Two reports compared with each other, or reports checked against budgets."""
