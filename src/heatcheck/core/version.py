"""The version that run records and `--version` tell."""

__version__ = "0.1.0"
