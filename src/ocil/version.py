"""The version, for all who need it without the package's public names."""

__version__ = "0.1.0"
