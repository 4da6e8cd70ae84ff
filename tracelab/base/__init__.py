"""Arrays, intervals, texts, errors, options, the version: what the other subpackages build on."""

__version__ = "0.1.0"
