"""Makers of the sections of a document, each from the tables of a report."""
