"""The version of this package. A release writes its own into this file."""

__version__ = "0.1.0.dev0"
