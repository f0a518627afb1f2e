"""Hosts that the user names, reached by ssh."""
