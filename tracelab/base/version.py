"""The version, apart from the package's public API, so that every module may know it."""

__version__ = "0.1.0"
