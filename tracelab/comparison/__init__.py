"""Comparison of reports with each other or with budgets."""
