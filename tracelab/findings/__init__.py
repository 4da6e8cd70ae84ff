"""One rule a file: facts in, findings out."""
