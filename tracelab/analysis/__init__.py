"""Analysis of one file and of many."""
