"""Cantle runs a whole workflow inside the machines that you already hold."""

__version__ = "0.1.0"
