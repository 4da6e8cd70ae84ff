"""Arrays, intervals, texts, errors and options: what the other subpackages build on."""
